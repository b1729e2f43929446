module {
  func.func @main(%arg0: tensor<4x3xf32> {fx_importer.name = "x"}) -> tensor<4x3xf32> {
    %0 = "tosa.const"() <{values = dense<0.000000e+00> : tensor<4x3xf32>}> : () -> tensor<4x3xf32>
    %1 = "tosa.const"() <{values = dense<1.000000e+00> : tensor<1x1xf32>}> : () -> tensor<1x1xf32>
    %2 = "tosa.const"() <{values = dense<0> : tensor<i32>}> : () -> tensor<i32>
    %3 = tosa.add %arg0, %1 : (tensor<4x3xf32>, tensor<1x1xf32>) -> tensor<4x3xf32>
    %4:4 = tosa.while_loop (%arg1 = %2, %arg2 = %0, %arg3 = %arg0, %arg4 = %3) : (tensor<i32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) -> (tensor<i32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
      %5 = "tosa.const"() <{values = dense<4> : tensor<i64>}> : () -> tensor<i64>
      %6 = tosa.cast %arg1 : (tensor<i32>) -> tensor<i64>
      %7 = tosa.greater %5, %6 : (tensor<i64>, tensor<i64>) -> tensor<i1>
      tosa.yield %7 : tensor<i1>
    } do {
    ^bb0(%arg1: tensor<i32>, %arg2: tensor<4x3xf32>, %arg3: tensor<4x3xf32>, %arg4: tensor<4x3xf32>):
      %5 = "tosa.const"() <{values = dense<[[0], [1], [2], [3]]> : tensor<4x1xi32>}> : () -> tensor<4x1xi32>
      %6 = "tosa.const"() <{values = dense<1.000000e+00> : tensor<1xf32>}> : () -> tensor<1xf32>
      %7 = tosa.const_shape  {values = dense<1> : tensor<1xindex>} : () -> !tosa.shape<1>
      %8 = tosa.const_shape  {values = dense<3> : tensor<1xindex>} : () -> !tosa.shape<1>
      %9 = "tosa.const"() <{values = dense<0> : tensor<1xi8>}> : () -> tensor<1xi8>
      %10 = "tosa.const"() <{values = dense<[[3, 1]]> : tensor<1x2xi32>}> : () -> tensor<1x2xi32>
      %11 = tosa.const_shape  {values = dense<[3, 2]> : tensor<2xindex>} : () -> !tosa.shape<2>
      %12 = tosa.const_shape  {values = dense<[1, 12, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
      %13 = "tosa.const"() <{values = dense<[[[0], [1], [2]]]> : tensor<1x3x1xi32>}> : () -> tensor<1x3x1xi32>
      %14 = tosa.const_shape  {values = dense<[1, 3, 1]> : tensor<3xindex>} : () -> !tosa.shape<3>
      %15 = tosa.const_shape  {values = dense<[1, 3]> : tensor<2xindex>} : () -> !tosa.shape<2>
      %16 = tosa.const_shape  {values = dense<1> : tensor<2xindex>} : () -> !tosa.shape<2>
      %17 = "tosa.const"() <{values = dense<1> : tensor<i32>}> : () -> tensor<i32>
      %18 = tosa.add %arg1, %17 : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %19 = tosa.reshape %arg1, %16 : (tensor<i32>, !tosa.shape<2>) -> tensor<1x1xi32>
      %20 = tosa.tile %19, %15 : (tensor<1x1xi32>, !tosa.shape<2>) -> tensor<1x3xi32>
      %21 = tosa.reshape %20, %14 : (tensor<1x3xi32>, !tosa.shape<3>) -> tensor<1x3x1xi32>
      %22 = tosa.concat %21, %13 {axis = 2 : i32} : (tensor<1x3x1xi32>, tensor<1x3x1xi32>) -> tensor<1x3x2xi32>
      %23 = tosa.reshape %arg3, %12 : (tensor<4x3xf32>, !tosa.shape<3>) -> tensor<1x12x1xf32>
      %24 = tosa.reshape %22, %11 : (tensor<1x3x2xi32>, !tosa.shape<2>) -> tensor<3x2xi32>
      %25 = tosa.mul %24, %10, %9 : (tensor<3x2xi32>, tensor<1x2xi32>, tensor<1xi8>) -> tensor<3x2xi32>
      %26 = tosa.reduce_sum %25 {axis = 1 : i32} : (tensor<3x2xi32>) -> tensor<3x1xi32>
      %27 = tosa.reshape %26, %15 : (tensor<3x1xi32>, !tosa.shape<2>) -> tensor<1x3xi32>
      %28 = tosa.gather %23, %27 : (tensor<1x12x1xf32>, tensor<1x3xi32>) -> tensor<1x3x1xf32>
      %29 = tosa.reshape %28, %8 : (tensor<1x3x1xf32>, !tosa.shape<1>) -> tensor<3xf32>
      %30 = tosa.reduce_sum %arg4 {axis = 0 : i32} : (tensor<4x3xf32>) -> tensor<1x3xf32>
      %31 = tosa.reduce_sum %30 {axis = 1 : i32} : (tensor<1x3xf32>) -> tensor<1x1xf32>
      %32 = tosa.reshape %31, %7 : (tensor<1x1xf32>, !tosa.shape<1>) -> tensor<1xf32>
      %33 = tosa.mul %29, %32, %9 : (tensor<3xf32>, tensor<1xf32>, tensor<1xi8>) -> tensor<3xf32>
      %34 = tosa.add %33, %6 : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
      %35 = tosa.reshape %34, %15 : (tensor<3xf32>, !tosa.shape<2>) -> tensor<1x3xf32>
      %36 = tosa.equal %19, %5 : (tensor<1x1xi32>, tensor<4x1xi32>) -> tensor<4x1xi1>
      %37 = tosa.select %36, %35, %arg2 : (tensor<4x1xi1>, tensor<1x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
      tosa.yield %18, %37, %arg3, %arg4 : tensor<i32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
    }
    return %4#1 : tensor<4x3xf32>
  }
}
