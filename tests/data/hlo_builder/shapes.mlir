module @shapes {
  func.func public @main(
      %arg0: tensor<4x6xf32> loc("x"),
      %arg1: tensor<i32> loc("at")) -> (
      tensor<4x6xi32> {jax.result_info = "iota"},
      tensor<2x3xf32> {jax.result_info = "constant"},
      tensor<4x2x6xf32> {jax.result_info = "broadcast"},
      tensor<2x12xf32> {jax.result_info = "reshape"},
      tensor<6x4xf32> {jax.result_info = "transpose"},
      tensor<4x6xf32> {jax.result_info = "reverse"},
      tensor<3x3xf32> {jax.result_info = "slice"},
      tensor<2x2xf32> {jax.result_info = "dynamic_slice"},
      tensor<4x6xf32> {jax.result_info = "dynamic_update"},
      tensor<8x7xf32> {jax.result_info = "pad"},
      tensor<6x6xf32> {jax.result_info = "concat"}) {
    %0 = stablehlo.iota dim = 1 : tensor<4x6xi32>
    %1 = stablehlo.constant dense<[[1.0, -0.0, 0.1], [1.0e+30, -2.5, 3.0]]> : tensor<2x3xf32>
    %2 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4x6xf32>) -> tensor<4x2x6xf32>
    %3 = stablehlo.reshape %arg0 : (tensor<4x6xf32>) -> tensor<2x12xf32>
    %4 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %5 = stablehlo.reverse %arg0, dims = [0] : tensor<4x6xf32>
    %6 = stablehlo.slice %arg0 [1:4, 0:6:2] : (tensor<4x6xf32>) -> tensor<3x3xf32>
    %7 = stablehlo.dynamic_slice %arg0, %arg1, %arg1, sizes = [2, 2] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
    %8 = stablehlo.slice %arg0 [0:2, 0:6] : (tensor<4x6xf32>) -> tensor<2x6xf32>
    %9 = stablehlo.dynamic_update_slice %arg0, %8, %arg1, %arg1 : (tensor<4x6xf32>, tensor<2x6xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
    %10 = stablehlo.constant dense<0.0> : tensor<f32>
    %11 = stablehlo.pad %arg0, %10, low = [1, -1], high = [0, 2], interior = [1, 0] : (tensor<4x6xf32>, tensor<f32>) -> tensor<8x7xf32>
    %12 = stablehlo.concatenate %arg0, %8, dim = 0 : (tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<6x6xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7, %9, %11, %12 : tensor<4x6xi32>, tensor<2x3xf32>, tensor<4x2x6xf32>, tensor<2x12xf32>, tensor<6x4xf32>, tensor<4x6xf32>, tensor<3x3xf32>, tensor<2x2xf32>, tensor<4x6xf32>, tensor<8x7xf32>, tensor<6x6xf32>
  }
}
