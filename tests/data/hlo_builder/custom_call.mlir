module @custom_call {
  func.func public @main(
      %arg0: tensor<16xf32> loc("x")) -> (
      tensor<16xf32> {jax.result_info = "out"}) {
    %0 = stablehlo.custom_call @ttt_accept(%arg0) {api_version = 4 : i32, backend_config = {"exact" = true, "mode" = "fast", "rounds" = 3 : i64, "scale" = 2.0 : f32}, operand_layouts = [dense<[0]> : tensor<1xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[0]> : tensor<1xindex>]} : (tensor<16xf32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}
