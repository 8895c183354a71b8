"""ONNX operators by kind (ai.onnx, and of com.microsoft those that exporters of transformers write)."""

# One operation per element of the output.
ELEMENTWISE = frozenset(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil
    Celu Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf
    IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QuickGelu Reciprocal Relu Round
    Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor""".split()
)
# One operation per element of the input.
REDUCTIONS = frozenset(
    """ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
    ReduceSumSquare""".split()
)
COPIES = frozenset(
    """Cast CastLike Concat DequantizeLinear DynamicQuantizeLinear Mask OneHot Pad QuantizeLinear Tile Trilu
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli""".split()
)
VIEWS = frozenset(
    "ConstantOfShape DepthToSpace Expand EyeLike Range ReverseSequence Slice SpaceToDepth Split Transpose".split()
)
ALIASES = frozenset("Dropout Flatten Identity Reshape Squeeze Unsqueeze".split())
WINDOWS = frozenset("AveragePool LpPool MaxPool".split())
GLOBAL_WINDOWS = frozenset("GlobalAveragePool GlobalLpPool GlobalMaxPool".split())
KERNELS = frozenset("CumSum GridSample LRN MaxRoiPool Resize RoiAlign Upsample".split())
GATHERS = frozenset("Gather GatherElements GatherND".split())
SCATTERS = frozenset("ScatterElements ScatterND Scatter TensorScatter".split())
# Row-wise operators: what they are, and the arithmetic of an element.
SOFTMAX = 5.0  # maximum, difference, exponential, sum, quotient
NORM = 7.0  # mean, difference, square, sum, scaling by the deviation, weight, bias
ROW_WISE = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), ("softmax", SOFTMAX)),
    **dict.fromkeys(
        (
            "LayerNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "SkipLayerNormalization",
            "MeanVarianceNormalization",
        ),
        ("norm", NORM),
    ),
    **dict.fromkeys(
        (
            "RMSNormalization",
            "SimplifiedLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "LpNormalization",
        ),
        ("norm", 4.0),  # square, sum, scaling, weight
    ),
}
CONTROL_FLOW = frozenset(("If", "Loop", "Scan", "SequenceMap"))
