module @products {
  func.func public @main(
      %arg0: tensor<2x4x8xf32> loc("x"),
      %arg1: tensor<2x4x8xbf16> loc("b"),
      %arg2: tensor<5xi32> loc("ids"),
      %arg3: tensor<3x8x6xf32> loc("w"),
      %arg4: tensor<2xui64> loc("seed")) -> (
      tensor<4xf32> {jax.result_info = "reduce"},
      tensor<4xf32> {jax.result_info = "reduce"},
      tensor<4xf32> {jax.result_info = "reduce"},
      tensor<4xf32> {jax.result_info = "reduce"},
      tensor<2x8xi1> {jax.result_info = "and"},
      tensor<2x8xi1> {jax.result_info = "or"},
      tensor<2x4x4xf32> {jax.result_info = "dot"},
      tensor<2x4x4xf32> {jax.result_info = "dot_highest"},
      tensor<2x4x4xf32> {jax.result_info = "dot_bf16"},
      tensor<2x4x6xf32> {jax.result_info = "conv"},
      tensor<5x8xf32> {jax.result_info = "take"},
      tensor<8x8xf32> {jax.result_info = "d_take"},
      tensor<8x3xf32> {jax.result_info = "top"},
      tensor<8x3xi32> {jax.result_info = "places"},
      tensor<7xf32> {jax.result_info = "random"},
      tensor<2xui64> {jax.result_info = "next"}) {
    %0 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%arg0 init: %0) applies stablehlo.add across dimensions = [0, 2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.constant dense<1.0> : tensor<f32>
    %3 = stablehlo.reduce(%arg0 init: %2) applies stablehlo.multiply across dimensions = [0, 2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %4 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %5 = stablehlo.reduce(%arg0 init: %4) applies stablehlo.maximum across dimensions = [0, 2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %6 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %7 = stablehlo.reduce(%arg0 init: %6) applies stablehlo.minimum across dimensions = [0, 2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<4xf32>
    %8 = stablehlo.constant dense<0.0> : tensor<2x4x8xf32>
    %9 = stablehlo.compare GT, %arg0, %8, FLOAT : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xi1>
    %10 = stablehlo.constant dense<true> : tensor<i1>
    %11 = stablehlo.reduce(%9 init: %10) applies stablehlo.and across dimensions = [1] : (tensor<2x4x8xi1>, tensor<i1>) -> tensor<2x8xi1>
    %12 = stablehlo.constant dense<false> : tensor<i1>
    %13 = stablehlo.reduce(%9 init: %12) applies stablehlo.or across dimensions = [1] : (tensor<2x4x8xi1>, tensor<i1>) -> tensor<2x8xi1>
    %14 = stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
    %15 = stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [HIGHEST, HIGHEST] : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
    %16 = stablehlo.dot_general %arg1, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x4x8xbf16>, tensor<2x4x8xbf16>) -> tensor<2x4x4xf32>
    %17 = stablehlo.convolution(%arg0, %arg3) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[2, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x8xf32>, tensor<3x8x6xf32>) -> tensor<2x4x6xf32>
    %18 = stablehlo.reshape %arg0 : (tensor<2x4x8xf32>) -> tensor<8x8xf32>
    %19 = "stablehlo.gather"(%18, %arg2) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<8x8xf32>, tensor<5xi32>) -> tensor<5x8xf32>
    // grad
    %20 = stablehlo.add %19, %19 : tensor<5x8xf32> loc(#loc1)
    %21 = stablehlo.constant dense<0> : tensor<5xi32> loc(#loc1)
    %22 = stablehlo.maximum %arg2, %21 : tensor<5xi32> loc(#loc1)
    %23 = stablehlo.constant dense<7> : tensor<5xi32> loc(#loc1)
    %24 = stablehlo.minimum %22, %23 : tensor<5xi32> loc(#loc1)
    %25 = stablehlo.constant dense<0.0> : tensor<8x8xf32> loc(#loc1)
    %26 = "stablehlo.scatter"(%25, %24, %20) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%27: tensor<f32>, %28: tensor<f32>):
      %29 = stablehlo.add %27, %28 : tensor<f32>
      stablehlo.return %29 : tensor<f32>
    }) : (tensor<8x8xf32>, tensor<5xi32>, tensor<5x8xf32>) -> tensor<8x8xf32> loc(#loc1)
    // (top)
    %30 = stablehlo.iota dim = 1 : tensor<8x8xi32>
    %31:2 = "stablehlo.sort"(%18, %30) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%32: tensor<f32>, %33: tensor<f32>, %34: tensor<i32>, %35: tensor<i32>):
      %36 = stablehlo.constant dense<0.0> : tensor<f32>
      %37 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %38 = stablehlo.compare EQ, %32, %36, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %39 = stablehlo.select %38, %36, %32 : tensor<i1>, tensor<f32>
      %40 = stablehlo.compare NE, %32, %32, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %41 = stablehlo.select %40, %37, %39 : tensor<i1>, tensor<f32>
      %42 = stablehlo.compare EQ, %33, %36, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %43 = stablehlo.select %42, %36, %33 : tensor<i1>, tensor<f32>
      %44 = stablehlo.compare NE, %33, %33, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %45 = stablehlo.select %44, %37, %43 : tensor<i1>, tensor<f32>
      %46 = stablehlo.compare GT, %41, %45, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %46 : tensor<i1>
    }) : (tensor<8x8xf32>, tensor<8x8xi32>) -> (tensor<8x8xf32>, tensor<8x8xi32>)
    %47 = stablehlo.slice %31#0 [0:8, 0:3] : (tensor<8x8xf32>) -> tensor<8x3xf32>
    %48 = stablehlo.slice %31#1 [0:8, 0:3] : (tensor<8x8xi32>) -> tensor<8x3xi32>
    %49:2 = stablehlo.rng_bit_generator %arg4, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<7xui32>)
    %50 = stablehlo.constant dense<8> : tensor<7xui32>
    %51 = stablehlo.shift_right_logical %49#1, %50 : tensor<7xui32>
    %52 = stablehlo.convert %51 : (tensor<7xui32>) -> tensor<7xf32>
    %53 = stablehlo.constant dense<5.9604645e-08> : tensor<7xf32>
    %54 = stablehlo.multiply %52, %53 : tensor<7xf32>
    return %1, %3, %5, %7, %11, %13, %14, %15, %16, %17, %19, %26, %47, %48, %54, %49#0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x8xi1>, tensor<2x8xi1>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x6xf32>, tensor<5x8xf32>, tensor<8x8xf32>, tensor<8x3xf32>, tensor<8x3xi32>, tensor<7xf32>, tensor<2xui64>
  }
}
#loc1 = loc("grad")
