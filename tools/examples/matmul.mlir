// Two matrices multiplied and one added: the smallest program that a person would call real.
module @matmul {
  func.func public @main(%a: tensor<256x512xf32>, %b: tensor<512x128xf32>, %c: tensor<128xf32>) -> tensor<256x128xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x512xf32>, tensor<512x128xf32>) -> tensor<256x128xf32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<128xf32>) -> tensor<256x128xf32>
    %2 = stablehlo.add %0, %1 : tensor<256x128xf32>
    return %2 : tensor<256x128xf32>
  }
}
