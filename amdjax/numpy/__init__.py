"""NumPy's surface on traced arrays; use it as `import amdjax.numpy as jnp`.

Names, argument orders, defaults and dtype promotion are jax.numpy's.
"""

from amdjax.numpy import array_methods as _array_methods
from amdjax.numpy import fft as fft
from amdjax.numpy import linalg as linalg
from amdjax.numpy.apply import (
    apply_along_axis as apply_along_axis,
)
from amdjax.numpy.apply import (
    apply_over_axes as apply_over_axes,
)
from amdjax.numpy.apply import (
    interp as interp,
)
from amdjax.numpy.apply import (
    unwrap as unwrap,
)
from amdjax.numpy.arithmetic import (
    abs as abs,
)
from amdjax.numpy.arithmetic import (
    absolute as absolute,
)
from amdjax.numpy.arithmetic import (
    add as add,
)
from amdjax.numpy.arithmetic import (
    clip as clip,
)
from amdjax.numpy.arithmetic import (
    divide as divide,
)
from amdjax.numpy.arithmetic import (
    divmod as divmod,
)
from amdjax.numpy.arithmetic import (
    fabs as fabs,
)
from amdjax.numpy.arithmetic import (
    float_power as float_power,
)
from amdjax.numpy.arithmetic import (
    floor_divide as floor_divide,
)
from amdjax.numpy.arithmetic import (
    fmax as fmax,
)
from amdjax.numpy.arithmetic import (
    fmin as fmin,
)
from amdjax.numpy.arithmetic import (
    fmod as fmod,
)
from amdjax.numpy.arithmetic import (
    gcd as gcd,
)
from amdjax.numpy.arithmetic import (
    heaviside as heaviside,
)
from amdjax.numpy.arithmetic import (
    lcm as lcm,
)
from amdjax.numpy.arithmetic import (
    maximum as maximum,
)
from amdjax.numpy.arithmetic import (
    minimum as minimum,
)
from amdjax.numpy.arithmetic import (
    mod as mod,
)
from amdjax.numpy.arithmetic import (
    multiply as multiply,
)
from amdjax.numpy.arithmetic import (
    negative as negative,
)
from amdjax.numpy.arithmetic import (
    positive as positive,
)
from amdjax.numpy.arithmetic import (
    pow as pow,
)
from amdjax.numpy.arithmetic import (
    power as power,
)
from amdjax.numpy.arithmetic import (
    reciprocal as reciprocal,
)
from amdjax.numpy.arithmetic import (
    remainder as remainder,
)
from amdjax.numpy.arithmetic import (
    sign as sign,
)
from amdjax.numpy.arithmetic import (
    square as square,
)
from amdjax.numpy.arithmetic import (
    subtract as subtract,
)
from amdjax.numpy.arithmetic import (
    true_divide as true_divide,
)
from amdjax.numpy.bits import (
    packbits as packbits,
)
from amdjax.numpy.bits import (
    unpackbits as unpackbits,
)
from amdjax.numpy.contractions import (
    convolve as convolve,
)
from amdjax.numpy.contractions import (
    correlate as correlate,
)
from amdjax.numpy.contractions import (
    cross as cross,
)
from amdjax.numpy.contractions import (
    dot as dot,
)
from amdjax.numpy.contractions import (
    inner as inner,
)
from amdjax.numpy.contractions import (
    matmul as matmul,
)
from amdjax.numpy.contractions import (
    matvec as matvec,
)
from amdjax.numpy.contractions import (
    outer as outer,
)
from amdjax.numpy.contractions import (
    tensordot as tensordot,
)
from amdjax.numpy.contractions import (
    vdot as vdot,
)
from amdjax.numpy.contractions import (
    vecdot as vecdot,
)
from amdjax.numpy.contractions import (
    vecmat as vecmat,
)
from amdjax.numpy.creation import (
    arange as arange,
)
from amdjax.numpy.creation import (
    array as array,
)
from amdjax.numpy.creation import (
    asarray as asarray,
)
from amdjax.numpy.creation import (
    astype as astype,
)
from amdjax.numpy.creation import (
    copy as copy,
)
from amdjax.numpy.creation import (
    empty as empty,
)
from amdjax.numpy.creation import (
    empty_like as empty_like,
)
from amdjax.numpy.creation import (
    eye as eye,
)
from amdjax.numpy.creation import (
    from_dlpack as from_dlpack,
)
from amdjax.numpy.creation import (
    frombuffer as frombuffer,
)
from amdjax.numpy.creation import (
    fromfile as fromfile,
)
from amdjax.numpy.creation import (
    fromfunction as fromfunction,
)
from amdjax.numpy.creation import (
    fromiter as fromiter,
)
from amdjax.numpy.creation import (
    fromstring as fromstring,
)
from amdjax.numpy.creation import (
    full as full,
)
from amdjax.numpy.creation import (
    full_like as full_like,
)
from amdjax.numpy.creation import (
    identity as identity,
)
from amdjax.numpy.creation import (
    load as load,
)
from amdjax.numpy.creation import (
    ones as ones,
)
from amdjax.numpy.creation import (
    ones_like as ones_like,
)
from amdjax.numpy.creation import (
    save as save,
)
from amdjax.numpy.creation import (
    savez as savez,
)
from amdjax.numpy.creation import (
    tri as tri,
)
from amdjax.numpy.creation import (
    zeros as zeros,
)
from amdjax.numpy.creation import (
    zeros_like as zeros_like,
)
from amdjax.numpy.cumulative import (
    cumprod as cumprod,
)
from amdjax.numpy.cumulative import (
    cumsum as cumsum,
)
from amdjax.numpy.cumulative import (
    cumulative_prod as cumulative_prod,
)
from amdjax.numpy.cumulative import (
    cumulative_sum as cumulative_sum,
)
from amdjax.numpy.cumulative import (
    diff as diff,
)
from amdjax.numpy.cumulative import (
    ediff1d as ediff1d,
)
from amdjax.numpy.cumulative import (
    gradient as gradient,
)
from amdjax.numpy.cumulative import (
    nancumprod as nancumprod,
)
from amdjax.numpy.cumulative import (
    nancumsum as nancumsum,
)
from amdjax.numpy.cumulative import (
    trapezoid as trapezoid,
)
from amdjax.numpy.einsum import (
    einsum as einsum,
)
from amdjax.numpy.einsum import (
    einsum_path as einsum_path,
)
from amdjax.numpy.elementary import (
    acos as acos,
)
from amdjax.numpy.elementary import (
    acosh as acosh,
)
from amdjax.numpy.elementary import (
    angle as angle,
)
from amdjax.numpy.elementary import (
    arccos as arccos,
)
from amdjax.numpy.elementary import (
    arccosh as arccosh,
)
from amdjax.numpy.elementary import (
    arcsin as arcsin,
)
from amdjax.numpy.elementary import (
    arcsinh as arcsinh,
)
from amdjax.numpy.elementary import (
    arctan as arctan,
)
from amdjax.numpy.elementary import (
    arctan2 as arctan2,
)
from amdjax.numpy.elementary import (
    arctanh as arctanh,
)
from amdjax.numpy.elementary import (
    asin as asin,
)
from amdjax.numpy.elementary import (
    asinh as asinh,
)
from amdjax.numpy.elementary import (
    atan as atan,
)
from amdjax.numpy.elementary import (
    atan2 as atan2,
)
from amdjax.numpy.elementary import (
    atanh as atanh,
)
from amdjax.numpy.elementary import (
    cbrt as cbrt,
)
from amdjax.numpy.elementary import (
    conj as conj,
)
from amdjax.numpy.elementary import (
    conjugate as conjugate,
)
from amdjax.numpy.elementary import (
    cos as cos,
)
from amdjax.numpy.elementary import (
    cosh as cosh,
)
from amdjax.numpy.elementary import (
    deg2rad as deg2rad,
)
from amdjax.numpy.elementary import (
    degrees as degrees,
)
from amdjax.numpy.elementary import (
    exp as exp,
)
from amdjax.numpy.elementary import (
    exp2 as exp2,
)
from amdjax.numpy.elementary import (
    expm1 as expm1,
)
from amdjax.numpy.elementary import (
    hypot as hypot,
)
from amdjax.numpy.elementary import (
    i0 as i0,
)
from amdjax.numpy.elementary import (
    imag as imag,
)
from amdjax.numpy.elementary import (
    log as log,
)
from amdjax.numpy.elementary import (
    log1p as log1p,
)
from amdjax.numpy.elementary import (
    log2 as log2,
)
from amdjax.numpy.elementary import (
    log10 as log10,
)
from amdjax.numpy.elementary import (
    logaddexp as logaddexp,
)
from amdjax.numpy.elementary import (
    logaddexp2 as logaddexp2,
)
from amdjax.numpy.elementary import (
    rad2deg as rad2deg,
)
from amdjax.numpy.elementary import (
    radians as radians,
)
from amdjax.numpy.elementary import (
    real as real,
)
from amdjax.numpy.elementary import (
    sin as sin,
)
from amdjax.numpy.elementary import (
    sinc as sinc,
)
from amdjax.numpy.elementary import (
    sinh as sinh,
)
from amdjax.numpy.elementary import (
    sqrt as sqrt,
)
from amdjax.numpy.elementary import (
    tan as tan,
)
from amdjax.numpy.elementary import (
    tanh as tanh,
)
from amdjax.numpy.floating import (
    around as around,
)
from amdjax.numpy.floating import (
    ceil as ceil,
)
from amdjax.numpy.floating import (
    copysign as copysign,
)
from amdjax.numpy.floating import (
    floor as floor,
)
from amdjax.numpy.floating import (
    frexp as frexp,
)
from amdjax.numpy.floating import (
    ldexp as ldexp,
)
from amdjax.numpy.floating import (
    modf as modf,
)
from amdjax.numpy.floating import (
    nan_to_num as nan_to_num,
)
from amdjax.numpy.floating import (
    nextafter as nextafter,
)
from amdjax.numpy.floating import (
    rint as rint,
)
from amdjax.numpy.floating import (
    round as round,
)
from amdjax.numpy.floating import (
    spacing as spacing,
)
from amdjax.numpy.floating import (
    trunc as trunc,
)
from amdjax.numpy.histograms import (
    histogram as histogram,
)
from amdjax.numpy.histograms import (
    histogram2d as histogram2d,
)
from amdjax.numpy.histograms import (
    histogram_bin_edges as histogram_bin_edges,
)
from amdjax.numpy.histograms import (
    histogramdd as histogramdd,
)
from amdjax.numpy.logic import (
    allclose as allclose,
)
from amdjax.numpy.logic import (
    array_equal as array_equal,
)
from amdjax.numpy.logic import (
    array_equiv as array_equiv,
)
from amdjax.numpy.logic import (
    bitwise_and as bitwise_and,
)
from amdjax.numpy.logic import (
    bitwise_count as bitwise_count,
)
from amdjax.numpy.logic import (
    bitwise_invert as bitwise_invert,
)
from amdjax.numpy.logic import (
    bitwise_left_shift as bitwise_left_shift,
)
from amdjax.numpy.logic import (
    bitwise_not as bitwise_not,
)
from amdjax.numpy.logic import (
    bitwise_or as bitwise_or,
)
from amdjax.numpy.logic import (
    bitwise_right_shift as bitwise_right_shift,
)
from amdjax.numpy.logic import (
    bitwise_xor as bitwise_xor,
)
from amdjax.numpy.logic import (
    equal as equal,
)
from amdjax.numpy.logic import (
    greater as greater,
)
from amdjax.numpy.logic import (
    greater_equal as greater_equal,
)
from amdjax.numpy.logic import (
    invert as invert,
)
from amdjax.numpy.logic import (
    isclose as isclose,
)
from amdjax.numpy.logic import (
    iscomplex as iscomplex,
)
from amdjax.numpy.logic import (
    iscomplexobj as iscomplexobj,
)
from amdjax.numpy.logic import (
    isfinite as isfinite,
)
from amdjax.numpy.logic import (
    isinf as isinf,
)
from amdjax.numpy.logic import (
    isnan as isnan,
)
from amdjax.numpy.logic import (
    isneginf as isneginf,
)
from amdjax.numpy.logic import (
    isposinf as isposinf,
)
from amdjax.numpy.logic import (
    isreal as isreal,
)
from amdjax.numpy.logic import (
    isrealobj as isrealobj,
)
from amdjax.numpy.logic import (
    left_shift as left_shift,
)
from amdjax.numpy.logic import (
    less as less,
)
from amdjax.numpy.logic import (
    less_equal as less_equal,
)
from amdjax.numpy.logic import (
    logical_and as logical_and,
)
from amdjax.numpy.logic import (
    logical_not as logical_not,
)
from amdjax.numpy.logic import (
    logical_or as logical_or,
)
from amdjax.numpy.logic import (
    logical_xor as logical_xor,
)
from amdjax.numpy.logic import (
    not_equal as not_equal,
)
from amdjax.numpy.logic import (
    right_shift as right_shift,
)
from amdjax.numpy.logic import (
    signbit as signbit,
)
from amdjax.numpy.manipulation import (
    append as append,
)
from amdjax.numpy.manipulation import (
    array_split as array_split,
)
from amdjax.numpy.manipulation import (
    atleast_1d as atleast_1d,
)
from amdjax.numpy.manipulation import (
    atleast_2d as atleast_2d,
)
from amdjax.numpy.manipulation import (
    atleast_3d as atleast_3d,
)
from amdjax.numpy.manipulation import (
    block as block,
)
from amdjax.numpy.manipulation import (
    broadcast_arrays as broadcast_arrays,
)
from amdjax.numpy.manipulation import (
    broadcast_shapes as broadcast_shapes,
)
from amdjax.numpy.manipulation import (
    broadcast_to as broadcast_to,
)
from amdjax.numpy.manipulation import (
    column_stack as column_stack,
)
from amdjax.numpy.manipulation import (
    concat as concat,
)
from amdjax.numpy.manipulation import (
    concatenate as concatenate,
)
from amdjax.numpy.manipulation import (
    diag as diag,
)
from amdjax.numpy.manipulation import (
    diagflat as diagflat,
)
from amdjax.numpy.manipulation import (
    diagonal as diagonal,
)
from amdjax.numpy.manipulation import (
    dsplit as dsplit,
)
from amdjax.numpy.manipulation import (
    dstack as dstack,
)
from amdjax.numpy.manipulation import (
    expand_dims as expand_dims,
)
from amdjax.numpy.manipulation import (
    flip as flip,
)
from amdjax.numpy.manipulation import (
    fliplr as fliplr,
)
from amdjax.numpy.manipulation import (
    flipud as flipud,
)
from amdjax.numpy.manipulation import (
    hsplit as hsplit,
)
from amdjax.numpy.manipulation import (
    hstack as hstack,
)
from amdjax.numpy.manipulation import (
    isscalar as isscalar,
)
from amdjax.numpy.manipulation import (
    iterable as iterable,
)
from amdjax.numpy.manipulation import (
    kron as kron,
)
from amdjax.numpy.manipulation import (
    matrix_transpose as matrix_transpose,
)
from amdjax.numpy.manipulation import (
    moveaxis as moveaxis,
)
from amdjax.numpy.manipulation import (
    ndim as ndim,
)
from amdjax.numpy.manipulation import (
    permute_dims as permute_dims,
)
from amdjax.numpy.manipulation import (
    ravel as ravel,
)
from amdjax.numpy.manipulation import (
    repeat as repeat,
)
from amdjax.numpy.manipulation import (
    reshape as reshape,
)
from amdjax.numpy.manipulation import (
    resize as resize,
)
from amdjax.numpy.manipulation import (
    roll as roll,
)
from amdjax.numpy.manipulation import (
    rollaxis as rollaxis,
)
from amdjax.numpy.manipulation import (
    rot90 as rot90,
)
from amdjax.numpy.manipulation import (
    shape as shape,
)
from amdjax.numpy.manipulation import (
    size as size,
)
from amdjax.numpy.manipulation import (
    split as split,
)
from amdjax.numpy.manipulation import (
    squeeze as squeeze,
)
from amdjax.numpy.manipulation import (
    stack as stack,
)
from amdjax.numpy.manipulation import (
    swapaxes as swapaxes,
)
from amdjax.numpy.manipulation import (
    tile as tile,
)
from amdjax.numpy.manipulation import (
    trace as trace,
)
from amdjax.numpy.manipulation import (
    transpose as transpose,
)
from amdjax.numpy.manipulation import (
    tril as tril,
)
from amdjax.numpy.manipulation import (
    trim_zeros as trim_zeros,
)
from amdjax.numpy.manipulation import (
    triu as triu,
)
from amdjax.numpy.manipulation import (
    unstack as unstack,
)
from amdjax.numpy.manipulation import (
    vander as vander,
)
from amdjax.numpy.manipulation import (
    vsplit as vsplit,
)
from amdjax.numpy.manipulation import (
    vstack as vstack,
)
from amdjax.numpy.nan_reductions import (
    nanargmax as nanargmax,
)
from amdjax.numpy.nan_reductions import (
    nanargmin as nanargmin,
)
from amdjax.numpy.nan_reductions import (
    nanmax as nanmax,
)
from amdjax.numpy.nan_reductions import (
    nanmean as nanmean,
)
from amdjax.numpy.nan_reductions import (
    nanmin as nanmin,
)
from amdjax.numpy.nan_reductions import (
    nanprod as nanprod,
)
from amdjax.numpy.nan_reductions import (
    nanstd as nanstd,
)
from amdjax.numpy.nan_reductions import (
    nansum as nansum,
)
from amdjax.numpy.nan_reductions import (
    nanvar as nanvar,
)
from amdjax.numpy.padding import (
    pad as pad,
)
from amdjax.numpy.polynomial import (
    poly as poly,
)
from amdjax.numpy.polynomial import (
    polyadd as polyadd,
)
from amdjax.numpy.polynomial import (
    polyder as polyder,
)
from amdjax.numpy.polynomial import (
    polydiv as polydiv,
)
from amdjax.numpy.polynomial import (
    polyfit as polyfit,
)
from amdjax.numpy.polynomial import (
    polyint as polyint,
)
from amdjax.numpy.polynomial import (
    polymul as polymul,
)
from amdjax.numpy.polynomial import (
    polysub as polysub,
)
from amdjax.numpy.polynomial import (
    polyval as polyval,
)
from amdjax.numpy.polynomial import (
    roots as roots,
)
from amdjax.numpy.ranges import (
    bartlett as bartlett,
)
from amdjax.numpy.ranges import (
    blackman as blackman,
)
from amdjax.numpy.ranges import (
    c_ as c_,
)
from amdjax.numpy.ranges import (
    geomspace as geomspace,
)
from amdjax.numpy.ranges import (
    hamming as hamming,
)
from amdjax.numpy.ranges import (
    hanning as hanning,
)
from amdjax.numpy.ranges import (
    index_exp as index_exp,
)
from amdjax.numpy.ranges import (
    indices as indices,
)
from amdjax.numpy.ranges import (
    kaiser as kaiser,
)
from amdjax.numpy.ranges import (
    linspace as linspace,
)
from amdjax.numpy.ranges import (
    logspace as logspace,
)
from amdjax.numpy.ranges import (
    meshgrid as meshgrid,
)
from amdjax.numpy.ranges import (
    mgrid as mgrid,
)
from amdjax.numpy.ranges import (
    ogrid as ogrid,
)
from amdjax.numpy.ranges import (
    r_ as r_,
)
from amdjax.numpy.ranges import (
    s_ as s_,
)
from amdjax.numpy.reductions import (
    all as all,
)
from amdjax.numpy.reductions import (
    amax as amax,
)
from amdjax.numpy.reductions import (
    amin as amin,
)
from amdjax.numpy.reductions import (
    any as any,
)
from amdjax.numpy.reductions import (
    argmax as argmax,
)
from amdjax.numpy.reductions import (
    argmin as argmin,
)
from amdjax.numpy.reductions import (
    average as average,
)
from amdjax.numpy.reductions import (
    count_nonzero as count_nonzero,
)
from amdjax.numpy.reductions import (
    max as max,
)
from amdjax.numpy.reductions import (
    mean as mean,
)
from amdjax.numpy.reductions import (
    min as min,
)
from amdjax.numpy.reductions import (
    prod as prod,
)
from amdjax.numpy.reductions import (
    ptp as ptp,
)
from amdjax.numpy.reductions import (
    std as std,
)
from amdjax.numpy.reductions import (
    sum as sum,
)
from amdjax.numpy.reductions import (
    var as var,
)
from amdjax.numpy.scalars import (
    ComplexWarning as ComplexWarning,
)
from amdjax.numpy.scalars import (
    array_repr as array_repr,
)
from amdjax.numpy.scalars import (
    array_str as array_str,
)
from amdjax.numpy.scalars import (
    bfloat16 as bfloat16,
)
from amdjax.numpy.scalars import (
    bool as bool,
)
from amdjax.numpy.scalars import (
    bool_ as bool_,
)
from amdjax.numpy.scalars import (
    can_cast as can_cast,
)
from amdjax.numpy.scalars import (
    cdouble as cdouble,
)
from amdjax.numpy.scalars import (
    character as character,
)
from amdjax.numpy.scalars import (
    complex64 as complex64,
)
from amdjax.numpy.scalars import (
    complex128 as complex128,
)
from amdjax.numpy.scalars import (
    complex_ as complex_,
)
from amdjax.numpy.scalars import (
    complexfloating as complexfloating,
)
from amdjax.numpy.scalars import (
    csingle as csingle,
)
from amdjax.numpy.scalars import (
    double as double,
)
from amdjax.numpy.scalars import (
    dtype as dtype,
)
from amdjax.numpy.scalars import (
    e as e,
)
from amdjax.numpy.scalars import (
    euler_gamma as euler_gamma,
)
from amdjax.numpy.scalars import (
    finfo as finfo,
)
from amdjax.numpy.scalars import (
    flexible as flexible,
)
from amdjax.numpy.scalars import (
    float4_e2m1fn as float4_e2m1fn,
)
from amdjax.numpy.scalars import (
    float6_e2m3fn as float6_e2m3fn,
)
from amdjax.numpy.scalars import (
    float6_e3m2fn as float6_e3m2fn,
)
from amdjax.numpy.scalars import (
    float8_e3m4 as float8_e3m4,
)
from amdjax.numpy.scalars import (
    float8_e4m3 as float8_e4m3,
)
from amdjax.numpy.scalars import (
    float8_e4m3b11fnuz as float8_e4m3b11fnuz,
)
from amdjax.numpy.scalars import (
    float8_e4m3fn as float8_e4m3fn,
)
from amdjax.numpy.scalars import (
    float8_e4m3fnuz as float8_e4m3fnuz,
)
from amdjax.numpy.scalars import (
    float8_e5m2 as float8_e5m2,
)
from amdjax.numpy.scalars import (
    float8_e5m2fnuz as float8_e5m2fnuz,
)
from amdjax.numpy.scalars import (
    float8_e8m0fnu as float8_e8m0fnu,
)
from amdjax.numpy.scalars import (
    float16 as float16,
)
from amdjax.numpy.scalars import (
    float32 as float32,
)
from amdjax.numpy.scalars import (
    float64 as float64,
)
from amdjax.numpy.scalars import (
    float_ as float_,
)
from amdjax.numpy.scalars import (
    floating as floating,
)
from amdjax.numpy.scalars import (
    generic as generic,
)
from amdjax.numpy.scalars import (
    get_printoptions as get_printoptions,
)
from amdjax.numpy.scalars import (
    iinfo as iinfo,
)
from amdjax.numpy.scalars import (
    inexact as inexact,
)
from amdjax.numpy.scalars import (
    inf as inf,
)
from amdjax.numpy.scalars import (
    int1 as int1,
)
from amdjax.numpy.scalars import (
    int2 as int2,
)
from amdjax.numpy.scalars import (
    int4 as int4,
)
from amdjax.numpy.scalars import (
    int8 as int8,
)
from amdjax.numpy.scalars import (
    int16 as int16,
)
from amdjax.numpy.scalars import (
    int32 as int32,
)
from amdjax.numpy.scalars import (
    int64 as int64,
)
from amdjax.numpy.scalars import (
    int_ as int_,
)
from amdjax.numpy.scalars import (
    integer as integer,
)
from amdjax.numpy.scalars import (
    isdtype as isdtype,
)
from amdjax.numpy.scalars import (
    issubdtype as issubdtype,
)
from amdjax.numpy.scalars import (
    nan as nan,
)
from amdjax.numpy.scalars import (
    ndarray as ndarray,
)
from amdjax.numpy.scalars import (
    newaxis as newaxis,
)
from amdjax.numpy.scalars import (
    number as number,
)
from amdjax.numpy.scalars import (
    object_ as object_,
)
from amdjax.numpy.scalars import (
    pi as pi,
)
from amdjax.numpy.scalars import (
    printoptions as printoptions,
)
from amdjax.numpy.scalars import (
    promote_types as promote_types,
)
from amdjax.numpy.scalars import (
    result_type as result_type,
)
from amdjax.numpy.scalars import (
    set_printoptions as set_printoptions,
)
from amdjax.numpy.scalars import (
    signedinteger as signedinteger,
)
from amdjax.numpy.scalars import (
    single as single,
)
from amdjax.numpy.scalars import (
    uint as uint,
)
from amdjax.numpy.scalars import (
    uint1 as uint1,
)
from amdjax.numpy.scalars import (
    uint2 as uint2,
)
from amdjax.numpy.scalars import (
    uint4 as uint4,
)
from amdjax.numpy.scalars import (
    uint8 as uint8,
)
from amdjax.numpy.scalars import (
    uint16 as uint16,
)
from amdjax.numpy.scalars import (
    uint32 as uint32,
)
from amdjax.numpy.scalars import (
    uint64 as uint64,
)
from amdjax.numpy.scalars import (
    unsignedinteger as unsignedinteger,
)
from amdjax.numpy.selecting import (
    argwhere as argwhere,
)
from amdjax.numpy.selecting import (
    choose as choose,
)
from amdjax.numpy.selecting import (
    compress as compress,
)
from amdjax.numpy.selecting import (
    delete as delete,
)
from amdjax.numpy.selecting import (
    diag_indices as diag_indices,
)
from amdjax.numpy.selecting import (
    diag_indices_from as diag_indices_from,
)
from amdjax.numpy.selecting import (
    extract as extract,
)
from amdjax.numpy.selecting import (
    fill_diagonal as fill_diagonal,
)
from amdjax.numpy.selecting import (
    flatnonzero as flatnonzero,
)
from amdjax.numpy.selecting import (
    insert as insert,
)
from amdjax.numpy.selecting import (
    ix_ as ix_,
)
from amdjax.numpy.selecting import (
    mask_indices as mask_indices,
)
from amdjax.numpy.selecting import (
    nonzero as nonzero,
)
from amdjax.numpy.selecting import (
    piecewise as piecewise,
)
from amdjax.numpy.selecting import (
    place as place,
)
from amdjax.numpy.selecting import (
    put as put,
)
from amdjax.numpy.selecting import (
    put_along_axis as put_along_axis,
)
from amdjax.numpy.selecting import (
    ravel_multi_index as ravel_multi_index,
)
from amdjax.numpy.selecting import (
    select as select,
)
from amdjax.numpy.selecting import (
    take as take,
)
from amdjax.numpy.selecting import (
    take_along_axis as take_along_axis,
)
from amdjax.numpy.selecting import (
    tril_indices as tril_indices,
)
from amdjax.numpy.selecting import (
    tril_indices_from as tril_indices_from,
)
from amdjax.numpy.selecting import (
    triu_indices as triu_indices,
)
from amdjax.numpy.selecting import (
    triu_indices_from as triu_indices_from,
)
from amdjax.numpy.selecting import (
    unravel_index as unravel_index,
)
from amdjax.numpy.selecting import (
    where as where,
)
from amdjax.numpy.setops import (
    intersect1d as intersect1d,
)
from amdjax.numpy.setops import (
    isin as isin,
)
from amdjax.numpy.setops import (
    setdiff1d as setdiff1d,
)
from amdjax.numpy.setops import (
    setxor1d as setxor1d,
)
from amdjax.numpy.setops import (
    union1d as union1d,
)
from amdjax.numpy.setops import (
    unique as unique,
)
from amdjax.numpy.setops import (
    unique_all as unique_all,
)
from amdjax.numpy.setops import (
    unique_counts as unique_counts,
)
from amdjax.numpy.setops import (
    unique_inverse as unique_inverse,
)
from amdjax.numpy.setops import (
    unique_values as unique_values,
)
from amdjax.numpy.sorting import (
    argpartition as argpartition,
)
from amdjax.numpy.sorting import (
    argsort as argsort,
)
from amdjax.numpy.sorting import (
    bincount as bincount,
)
from amdjax.numpy.sorting import (
    digitize as digitize,
)
from amdjax.numpy.sorting import (
    lexsort as lexsort,
)
from amdjax.numpy.sorting import (
    partition as partition,
)
from amdjax.numpy.sorting import (
    searchsorted as searchsorted,
)
from amdjax.numpy.sorting import (
    sort as sort,
)
from amdjax.numpy.sorting import (
    sort_complex as sort_complex,
)
from amdjax.numpy.statistics import (
    corrcoef as corrcoef,
)
from amdjax.numpy.statistics import (
    cov as cov,
)
from amdjax.numpy.statistics import (
    median as median,
)
from amdjax.numpy.statistics import (
    nanmedian as nanmedian,
)
from amdjax.numpy.statistics import (
    nanpercentile as nanpercentile,
)
from amdjax.numpy.statistics import (
    nanquantile as nanquantile,
)
from amdjax.numpy.statistics import (
    percentile as percentile,
)
from amdjax.numpy.statistics import (
    quantile as quantile,
)
from amdjax.numpy.ufunc_api import (
    frompyfunc as frompyfunc,
)
from amdjax.numpy.ufunc_api import (
    ufunc as ufunc,
)
from amdjax.numpy.vectorize import (
    vectorize as vectorize,
)

_array_methods.install()
