module @control {
  func.func public @main(
      %arg0: tensor<f32> loc("x"),
      %arg1: tensor<i32> loc("at"),
      %arg2: tensor<7xf32> loc("many")) -> (
      tensor<f32> {jax.result_info = "while"},
      tensor<f32> {jax.result_info = "if"},
      tensor<f32> {jax.result_info = "case"},
      tensor<f32> {jax.result_info = "call"},
      tensor<f32> {jax.result_info = "composite"},
      tensor<f32> {jax.result_info = "barrier"},
      tensor<f32> {jax.result_info = "d_x"},
      tensor<7xf32> {jax.result_info = "d_many"}) {
    %0 = stablehlo.while(%1 = %arg0) : tensor<f32>
    cond {
      %2 = stablehlo.constant dense<1.0e+01> : tensor<f32>
      %3 = stablehlo.compare LT, %1, %2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %4 = stablehlo.add %1, %1 : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }
    %5 = stablehlo.constant dense<0.0> : tensor<f32>
    %6 = stablehlo.compare GT, %arg0, %5, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = "stablehlo.if"(%6) ({
      %8 = stablehlo.add %arg0, %arg0 : tensor<f32>
      stablehlo.return %8 : tensor<f32>
    }, {
      %9 = stablehlo.multiply %arg0, %arg0 : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }) : (tensor<i1>) -> tensor<f32>
    %10 = "stablehlo.case"(%arg1) ({
      %11 = stablehlo.add %arg0, %arg0 : tensor<f32>
      stablehlo.return %11 : tensor<f32>
    }, {
      %12 = stablehlo.multiply %arg0, %arg0 : tensor<f32>
      stablehlo.return %12 : tensor<f32>
    }, {
      %13 = stablehlo.add %arg0, %arg0 : tensor<f32>
      stablehlo.return %13 : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    %14 = func.call @square(%arg0) : (tensor<f32>) -> tensor<f32>
    %15 = stablehlo.composite "ttt.square" %arg0 {decomposition = @ttt.square.impl} : (tensor<f32>) -> tensor<f32>
    %16:2 = stablehlo.optimization_barrier %arg0, %15 : tensor<f32>, tensor<f32>
    %17 = stablehlo.slice %arg2 [0:6] : (tensor<7xf32>) -> tensor<6xf32>
    %18 = stablehlo.reshape %17 : (tensor<6xf32>) -> tensor<3x2xf32>
    %19 = stablehlo.constant dense<0> : tensor<i32>
    %20 = stablehlo.constant dense<0.0> : tensor<3x2xf32>
    %21 = stablehlo.constant dense<0.0> : tensor<3xf32>
    %22:6 = stablehlo.while(%23 = %19, %24 = %arg0, %25 = %20, %26 = %21, %27 = %18, %28 = %arg0) : tensor<i32>, tensor<f32>, tensor<3x2xf32>, tensor<3xf32>, tensor<3x2xf32>, tensor<f32>
    cond {
      %29 = stablehlo.constant dense<3> : tensor<i32>
      %30 = stablehlo.compare LT, %23, %29, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %30 : tensor<i1>
    } do {
      %31 = stablehlo.constant dense<0> : tensor<i32>
      %32 = stablehlo.dynamic_slice %27, %23, %31, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %33 = stablehlo.reshape %32 : (tensor<1x2xf32>) -> tensor<2xf32>
      %34 = stablehlo.constant dense<0.0> : tensor<2xf32>
      %35:5 = stablehlo.while(%36 = %31, %37 = %24, %38 = %34, %39 = %33, %40 = %28) : tensor<i32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      cond {
        %41 = stablehlo.constant dense<2> : tensor<i32>
        %42 = stablehlo.compare LT, %36, %41, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %42 : tensor<i1>
      } do {
        %43 = stablehlo.dynamic_slice %39, %36, sizes = [1] : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32>
        %44 = stablehlo.reshape %43 : (tensor<1xf32>) -> tensor<f32>
        %45 = stablehlo.multiply %37, %40 : tensor<f32>
        %46 = stablehlo.add %45, %44 : tensor<f32>
        %47 = stablehlo.tanh %46 : tensor<f32>
        %48 = stablehlo.reshape %47 : (tensor<f32>) -> tensor<1xf32>
        %49 = stablehlo.dynamic_update_slice %38, %48, %36 : (tensor<2xf32>, tensor<1xf32>, tensor<i32>) -> tensor<2xf32>
        %50 = stablehlo.constant dense<1> : tensor<i32>
        %51 = stablehlo.add %36, %50 : tensor<i32>
        stablehlo.return %51, %47, %49, %39, %40 : tensor<i32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      }
      %52 = stablehlo.reshape %35#2 : (tensor<2xf32>) -> tensor<1x2xf32>
      %53 = stablehlo.dynamic_update_slice %25, %52, %23, %31 : (tensor<3x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32>
      %54 = stablehlo.reshape %24 : (tensor<f32>) -> tensor<1xf32>
      %55 = stablehlo.dynamic_update_slice %26, %54, %23 : (tensor<3xf32>, tensor<1xf32>, tensor<i32>) -> tensor<3xf32>
      %56 = stablehlo.constant dense<1> : tensor<i32>
      %57 = stablehlo.add %23, %56 : tensor<i32>
      stablehlo.return %57, %35#1, %53, %55, %27, %28 : tensor<i32>, tensor<f32>, tensor<3x2xf32>, tensor<3xf32>, tensor<3x2xf32>, tensor<f32>
    }
    %58 = stablehlo.reshape %22#2 : (tensor<3x2xf32>) -> tensor<6xf32>
    %59 = stablehlo.slice %arg2 [6:7] : (tensor<7xf32>) -> tensor<1xf32>
    %60 = stablehlo.reshape %59 : (tensor<1xf32>) -> tensor<f32>
    %61 = stablehlo.multiply %22#1, %arg0 : tensor<f32>
    %62 = stablehlo.add %61, %60 : tensor<f32>
    %63 = stablehlo.tanh %62 : tensor<f32>
    %64 = stablehlo.reshape %63 : (tensor<f32>) -> tensor<1xf32>
    %65 = stablehlo.concatenate %58, %64, dim = 0 : (tensor<6xf32>, tensor<1xf32>) -> tensor<7xf32>
    %66 = stablehlo.constant dense<1.0> : tensor<f32>
    // grad
    %67 = stablehlo.add %65, %65 : tensor<7xf32> loc(#loc1)
    %68 = stablehlo.slice %67 [0:6] : (tensor<7xf32>) -> tensor<6xf32> loc(#loc1)
    %69 = stablehlo.slice %67 [6:7] : (tensor<7xf32>) -> tensor<1xf32> loc(#loc1)
    %70 = stablehlo.reshape %69 : (tensor<1xf32>) -> tensor<f32> loc(#loc1)
    %71 = stablehlo.multiply %63, %63 : tensor<f32> loc(#loc1)
    %72 = stablehlo.subtract %66, %71 : tensor<f32> loc(#loc1)
    %73 = stablehlo.multiply %70, %72 : tensor<f32> loc(#loc1)
    %74 = stablehlo.multiply %73, %arg0 : tensor<f32> loc(#loc1)
    %75 = stablehlo.multiply %73, %22#1 : tensor<f32> loc(#loc1)
    %76 = stablehlo.reshape %73 : (tensor<f32>) -> tensor<1xf32> loc(#loc1)
    %77 = stablehlo.pad %76, %5, low = [6], high = [0], interior = [0] : (tensor<1xf32>, tensor<f32>) -> tensor<7xf32> loc(#loc1)
    %78 = stablehlo.reshape %68 : (tensor<6xf32>) -> tensor<3x2xf32> loc(#loc1)
    %79:8 = stablehlo.while(%80 = %19, %81 = %74, %82 = %5, %83 = %20, %84 = %18, %85 = %22#3, %86 = %78, %87 = %arg0) : tensor<i32>, tensor<f32>, tensor<f32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3xf32>, tensor<3x2xf32>, tensor<f32>
    cond {
      %88 = stablehlo.constant dense<3> : tensor<i32> loc(#loc1)
      %89 = stablehlo.compare LT, %80, %88, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1> loc(#loc1)
      stablehlo.return %89 : tensor<i1>
    } do {
      %90 = stablehlo.constant dense<2> : tensor<i32> loc(#loc1)
      %91 = stablehlo.subtract %90, %80 : tensor<i32> loc(#loc1)
      %92 = stablehlo.constant dense<0> : tensor<i32> loc(#loc1)
      %93 = stablehlo.dynamic_slice %84, %91, %92, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32> loc(#loc1)
      %94 = stablehlo.reshape %93 : (tensor<1x2xf32>) -> tensor<2xf32> loc(#loc1)
      %95 = stablehlo.dynamic_slice %85, %91, sizes = [1] : (tensor<3xf32>, tensor<i32>) -> tensor<1xf32> loc(#loc1)
      %96 = stablehlo.reshape %95 : (tensor<1xf32>) -> tensor<f32> loc(#loc1)
      %97 = stablehlo.dynamic_slice %86, %91, %92, sizes = [1, 2] : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32> loc(#loc1)
      %98 = stablehlo.reshape %97 : (tensor<1x2xf32>) -> tensor<2xf32> loc(#loc1)
      %99 = stablehlo.constant dense<0.0> : tensor<2xf32>
      // (top)
      %100:6 = stablehlo.while(%101 = %92, %102 = %96, %103 = %99, %104 = %99, %105 = %94, %106 = %87) : tensor<i32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      cond {
        %107 = stablehlo.constant dense<2> : tensor<i32>
        %108 = stablehlo.compare LT, %101, %107, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %108 : tensor<i1>
      } do {
        %109 = stablehlo.dynamic_slice %105, %101, sizes = [1] : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32>
        %110 = stablehlo.reshape %109 : (tensor<1xf32>) -> tensor<f32>
        %111 = stablehlo.multiply %102, %106 : tensor<f32>
        %112 = stablehlo.add %111, %110 : tensor<f32>
        %113 = stablehlo.tanh %112 : tensor<f32>
        %114 = stablehlo.reshape %113 : (tensor<f32>) -> tensor<1xf32>
        %115 = stablehlo.dynamic_update_slice %103, %114, %101 : (tensor<2xf32>, tensor<1xf32>, tensor<i32>) -> tensor<2xf32>
        %116 = stablehlo.reshape %102 : (tensor<f32>) -> tensor<1xf32>
        %117 = stablehlo.dynamic_update_slice %104, %116, %101 : (tensor<2xf32>, tensor<1xf32>, tensor<i32>) -> tensor<2xf32>
        %118 = stablehlo.constant dense<1> : tensor<i32>
        %119 = stablehlo.add %101, %118 : tensor<i32>
        stablehlo.return %119, %113, %115, %117, %105, %106 : tensor<i32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      }
      %120 = stablehlo.constant dense<0.0> : tensor<f32> loc(#loc1)
      // grad
      %121:8 = stablehlo.while(%122 = %92, %123 = %81, %124 = %120, %125 = %99, %126 = %100#2, %127 = %100#3, %128 = %98, %129 = %87) : tensor<i32>, tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      cond {
        %130 = stablehlo.constant dense<2> : tensor<i32> loc(#loc1)
        %131 = stablehlo.compare LT, %122, %130, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1> loc(#loc1)
        stablehlo.return %131 : tensor<i1>
      } do {
        %132 = stablehlo.constant dense<1> : tensor<i32> loc(#loc1)
        %133 = stablehlo.subtract %132, %122 : tensor<i32> loc(#loc1)
        %134 = stablehlo.dynamic_slice %126, %133, sizes = [1] : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32> loc(#loc1)
        %135 = stablehlo.reshape %134 : (tensor<1xf32>) -> tensor<f32> loc(#loc1)
        %136 = stablehlo.dynamic_slice %127, %133, sizes = [1] : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32> loc(#loc1)
        %137 = stablehlo.reshape %136 : (tensor<1xf32>) -> tensor<f32> loc(#loc1)
        %138 = stablehlo.dynamic_slice %128, %133, sizes = [1] : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32> loc(#loc1)
        %139 = stablehlo.reshape %138 : (tensor<1xf32>) -> tensor<f32> loc(#loc1)
        %140 = stablehlo.add %123, %139 : tensor<f32> loc(#loc1)
        %141 = stablehlo.constant dense<1.0> : tensor<f32> loc(#loc1)
        %142 = stablehlo.multiply %135, %135 : tensor<f32> loc(#loc1)
        %143 = stablehlo.subtract %141, %142 : tensor<f32> loc(#loc1)
        %144 = stablehlo.multiply %140, %143 : tensor<f32> loc(#loc1)
        %145 = stablehlo.multiply %144, %129 : tensor<f32> loc(#loc1)
        %146 = stablehlo.multiply %144, %137 : tensor<f32> loc(#loc1)
        %147 = stablehlo.add %124, %146 : tensor<f32> loc(#loc1)
        %148 = stablehlo.reshape %144 : (tensor<f32>) -> tensor<1xf32> loc(#loc1)
        %149 = stablehlo.dynamic_update_slice %125, %148, %133 : (tensor<2xf32>, tensor<1xf32>, tensor<i32>) -> tensor<2xf32> loc(#loc1)
        %150 = stablehlo.add %122, %132 : tensor<i32> loc(#loc1)
        stablehlo.return %150, %145, %147, %149, %126, %127, %128, %129 : tensor<i32>, tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<f32>
      } loc(#loc1)
      %151 = stablehlo.add %82, %121#2 : tensor<f32> loc(#loc1)
      %152 = stablehlo.reshape %121#3 : (tensor<2xf32>) -> tensor<1x2xf32> loc(#loc1)
      %153 = stablehlo.dynamic_update_slice %83, %152, %91, %92 : (tensor<3x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x2xf32> loc(#loc1)
      %154 = stablehlo.constant dense<1> : tensor<i32> loc(#loc1)
      %155 = stablehlo.add %80, %154 : tensor<i32> loc(#loc1)
      stablehlo.return %155, %121#1, %151, %153, %84, %85, %86, %87 : tensor<i32>, tensor<f32>, tensor<f32>, tensor<3x2xf32>, tensor<3x2xf32>, tensor<3xf32>, tensor<3x2xf32>, tensor<f32>
    } loc(#loc1)
    %156 = stablehlo.add %75, %79#1 : tensor<f32> loc(#loc1)
    %157 = stablehlo.add %156, %79#2 : tensor<f32> loc(#loc1)
    %158 = stablehlo.reshape %79#3 : (tensor<3x2xf32>) -> tensor<6xf32> loc(#loc1)
    %159 = stablehlo.pad %158, %5, low = [0], high = [1], interior = [0] : (tensor<6xf32>, tensor<f32>) -> tensor<7xf32> loc(#loc1)
    %160 = stablehlo.add %77, %159 : tensor<7xf32> loc(#loc1)
    %161:2 = stablehlo.optimization_barrier %arg0, %66 : tensor<f32>, tensor<f32> loc(#loc1)
    %162 = stablehlo.multiply %161#1, %161#0 : tensor<f32> loc(#loc1)
    %163 = stablehlo.add %162, %162 : tensor<f32> loc(#loc1)
    %164 = stablehlo.add %157, %163 : tensor<f32> loc(#loc1)
    return %0, %7, %10, %14, %15, %16#1, %164, %160 : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<7xf32>
  }
  func.func private @square(%arg0: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func private @ttt.square.impl(%arg0: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<f32>
    return %0 : tensor<f32>
  }
}
#loc1 = loc("grad")
