"""The primitives of `jax.lax` by kind. One that is in no set here is unknown: it is counted and named."""

from __future__ import annotations

# One operation per element of the output.
ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex
    conj cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag
    integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul mulhi ne neg nextafter not or
    polygamma population_count pow random_gamma_grad real regularized_incomplete_beta rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor zeta""".split()
)
# One operation per element of the input.
REDUCTIONS = frozenset(
    """reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor reduce argmax argmin""".split()
)
# Written in the order they are read, without floating-point arithmetic; they fuse like elementwise steps.
COPIES = frozenset(
    """bitcast_convert_type concatenate convert_element_type pad random_bits random_fold_in random_split
    reduce_precision rng_uniform rng_bit_generator threefry2x32 tile""".split()
)
VIEWS = frozenset("broadcast_in_dim dynamic_slice empty empty2 iota rev slice split transpose".split())
ALIASES = frozenset(
    """copy copy_p device_put expand_dims layout_constraint mesh_cast name optimization_barrier pvary random_seed
    random_unwrap random_wrap reshape reshard sharding_constraint squeeze stop_gradient zeros_like""".split()
)
SCANS = frozenset("cumsum cumprod cummax cummin cumlogsumexp".split())
WINDOWS = frozenset("reduce_window reduce_window_max reduce_window_min reduce_window_sum".split())
SCATTERS = frozenset(
    "scatter scatter-add scatter_add scatter_sub scatter_mul scatter_min scatter_max scatter-update".split()
)
COLLECTIVES = frozenset(
    """all_gather all_gather_invariant all_gather_reduced all_reduced_cast all_to_all pbroadcast pmax pmin ppermute
    pgather psum psum2 psum_invariant psum_scatter ragged_all_to_all reduce_scatter unreduced_psum
    unreduced_reduce_scatter""".split()
)
FREE = frozenset(
    "after_all axis_index create_token debug_callback debug_print pure_callback io_callback get_mesh".split()
)
