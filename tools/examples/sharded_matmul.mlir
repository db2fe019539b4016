// Rows of %a over the 256 chips of a pod, %b gathered where it is needed, by the partitioner: Shardy's
// annotations say where arrays live, not how they move. With --partitions 256.
module @sharded_matmul attributes {mhlo.num_partitions = 256 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @pod = <["data"=16, "model"=16]>
  func.func public @main(
      %a: tensor<8192x4096xbf16> {sdy.sharding = #sdy.sharding<@pod, [{"data"}, {"model"}]>},
      %b: tensor<4096x4096xbf16> {sdy.sharding = #sdy.sharding<@pod, [{"model"}, {}]>})
      -> (tensor<8192x4096xbf16> {sdy.sharding = #sdy.sharding<@pod, [{"data"}, {}]>}) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8192x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<8192x4096xbf16>
    return %0 : tensor<8192x4096xbf16>
  }
}
