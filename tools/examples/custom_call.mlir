// A call into a hand-written kernel through XLA FFI. `ttt hlo compile --ffi ttt_example` lets the
// compiler see a handler of that name.
module @custom_call {
  func.func public @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.add %x, %x : tensor<1024xf32>
    %1 = stablehlo.custom_call @ttt_example(%0) {api_version = 4 : i32, backend_config = {scale = 2.000000e+00 : f32}} : (tensor<1024xf32>) -> tensor<1024xf32>
    return %1 : tensor<1024xf32>
  }
}
