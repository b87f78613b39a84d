"""Labels, distances and probabilities as a network of ONNX."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shoal import _core
from shoal._checks import params as _params
from shoal._fit.centers import CenterFitter
from shoal._mixture.model import WHOLE
from shoal._rows.arrays import source_of_values
from shoal._rows.features import names_of
from shoal.formats.stream import required

from .fitted import fitted, is_cosine, is_mixture
from .mixtures import variances_of, whitened

Number = Literal["float32", "float64"]

#: The oldest version of the operators in which ``ArgMin`` and ``Max`` take float64, and its file format.
OPSET, FORMAT = 13, 7
#: Largest number of bytes of the constants: a protobuf message has at most 2 GiB.
MOST_BYTES = 2**31 - 2**20
#: Lengths outside of these limits are rescaled, so that squares neither overflow nor vanish.
SHORTEST, LONGEST = 1e-75, 1e75


def to_onnx(model: Any, *, dtype: Number | None = None) -> Any:
    """Convert a fitted model to a network of ONNX.

    Needs the extra ``onnx``. Any ONNX runtime computes the network, without Python and shoal.

    Parameters
    ----------
    model : estimator
        A fitted estimator of shoal with centers, or a mixture.
    dtype : {"float32", "float64"} or None, default=None
        Type of the input and of the outputs except the labels. None: the type of the centers.

    Returns
    -------
    onnx.ModelProto
        The input is ``X`` of shape (N, n_features) for any N. The outputs are, in this order:

        - ``label`` of shape (N,), int64: as ``predict``.
        - ``distances`` of shape (N, n_clusters): as ``transform``. For a mixture instead ``probabilities`` of
          shape (N, n_components), as ``predict_proba(X, dense=True)``, and ``log_density`` of shape (N,), as
          ``score_samples``.

        The metadata name the estimator, the metric and the features. With ``metric="cosine"`` the network
        normalizes the rows; rows of zeros stay zero, and get the label of ``predict``.

    Raises
    ------
    TypeError
        If `model` is not an estimator with centers.
    sklearn.exceptions.NotFittedError
        Before :meth:`~shoal.KMeans.fit`.
    ValueError
        If `dtype` has another value, or the centers take more than 2 GB in float64.
    ImportError
        If onnx is missing.

    See Also
    --------
    to_faiss : An index of the centers.

    Notes
    -----
    The network computes in float64, by expanded squares ``|x|^2 - 2 x.c + |c|^2`` about the median of the
    centers, so it needs memory for ``N * n_clusters`` values only. The lower index wins a tie.

    - Labels agree with ``predict`` except for rows whose two nearest centers are equally far up to rounding
      of the type of the centers.
    - A distance `r` of a row that lies `l` from the median has a rounding error of about
      ``1e-16 * l**2 / r``, at most about ``1e-8 * l``. For models in float32 ``transform`` is less precise.
    - NaN and infinity are not checked: their labels have no meaning.

    Examples
    --------
    >>> import numpy as np, shoal
    >>> from onnxruntime import InferenceSession
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)).astype("float32")
    >>> model = shoal.KMeans(10, random_state=0).fit(X)
    >>> network = shoal.convert.to_onnx(model)
    >>> labels, distances = InferenceSession(network.SerializeToString()).run(None, {"X": X})
    >>> bool((labels == model.labels_).all()), distances.shape
    (True, (1000, 10))
    """
    source = fitted(model)
    if dtype is not None:
        _params.one_of("dtype", dtype, Number)
    onnx = required("onnx", "onnx", "shoal.convert.to_onnx")
    number = source.cluster_centers_.dtype.name if dtype is None else dtype
    network = Network(onnx, number, source.cluster_centers_.shape[1])
    if is_mixture(source):
        _mixture(network, source)
    else:
        _clusters(network, source)
    return network.finish(source)


class Network:
    """A network under construction; values are float64 until they are outputs.

    `number` is the type of the input and the outputs, `dim` the number of features.
    """

    def __init__(self, onnx: Any, number: str, dim: int) -> None:
        self._onnx = onnx
        self._type = onnx.TensorProto.FLOAT if number == "float32" else onnx.TensorProto.DOUBLE
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._outputs: list[Any] = []
        self._bytes = 0
        self._input = onnx.helper.make_tensor_value_info("X", self._type, ["N", dim])
        self.rows = self.add("Cast", "X", to=onnx.TensorProto.DOUBLE)

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Apply an operator to values; return the name of the result."""
        name = output or f"value_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def largest(self, values: str, count: int) -> str:
        """Keep the `count` largest values of every row, and replace the others by minus infinity."""
        helper, double = self._onnx.helper, self._onnx.TensorProto.DOUBLE
        inputs, top = [values, self.constant(np.array([count]))], [f"{values}_top", f"{values}_where"]
        self._nodes.append(helper.make_node("TopK", inputs, top, axis=1))
        nothing = helper.make_tensor("nothing", double, [1], [-math.inf])
        nowhere = self.add("ConstantOfShape", self.add("Shape", values), value=nothing)
        return self.add("ScatterElements", nowhere, top[1], top[0], axis=1)

    def constant(self, values: npt.ArrayLike) -> str:
        """Store a constant, float64 unless it is an int64 array; return its name."""
        array = np.asarray(values)
        array = np.ascontiguousarray(array if array.dtype == np.int64 else array.astype(np.float64))
        self._bytes += array.nbytes
        if self._bytes > MOST_BYTES:
            raise ValueError(
                "model must have centers of at most 2 GB in float64, the limit of an ONNX file, got at least "
                f"{self._bytes} bytes"
            )
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def put(self, name: str, value: str, shape: list[Any]) -> None:
        """Return a value as an output of the type of the input."""
        self.add("Cast", value, output=name, to=self._type)
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, self._type, shape))

    def put_label(self, operator: str, values: str) -> None:
        """Return the index of the smallest or largest value of every row as the output ``label``."""
        self.add(operator, values, output="label", axis=1, keepdims=0)
        self._outputs.append(
            self._onnx.helper.make_tensor_value_info("label", self._onnx.TensorProto.INT64, ["N"])
        )

    def finish(self, source: CenterFitter) -> Any:
        """Return the network with the metadata of an estimator."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "shoal", [self._input], self._outputs, self._constants)
        made = helper.make_model(
            graph,
            producer_name="shoal",
            producer_version=_core.version,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=FORMAT,
        )
        about = {"estimator": type(source).__name__, "metric": "cosine" if is_cosine(source) else "euclidean"}
        names = names_of(source)
        if names is not None:
            about["feature_names"] = json.dumps(names)
        helper.set_model_props(made, about)
        self._onnx.checker.check_model(made)
        return made


def _clusters(network: Network, source: CenterFitter) -> None:
    """Add labels and distances."""
    centers = source.cluster_centers_.astype(np.float64)
    rows, is_zero = _normalized(network) if is_cosine(source) else (network.rows, None)
    scale = _scale(centers)
    if scale != 1:
        centers *= scale
        rows = network.add("Mul", rows, network.constant(scale))
    values, sq_lengths = _centered(network, rows, centers)
    nearness = values
    if is_zero is not None:
        # Up to rounding, all centers are equally far from a row of zeros. The label is known before.
        others = np.ones(len(centers))
        others[_label_of_zeros(source)] = 0
        nearness = network.add("Where", is_zero, network.constant(others), values)
    network.put_label("ArgMin", nearness)
    sq_distances = network.add("Max", network.add("Add", values, sq_lengths), network.constant(0.0))
    distances = network.add("Sqrt", sq_distances)
    if scale != 1:
        distances = network.add("Div", distances, network.constant(scale))
    network.put("distances", distances, ["N", len(centers)])


def _label_of_zeros(source: CenterFitter) -> int:
    """Return the label of a row of zeros, as ``predict``."""
    zeros = source_of_values(np.zeros_like(source.cluster_centers_[:1]))
    labels, _ = source._labeled(zeros, 0, with_distances=False)
    return int(labels[0])


def _normalized(network: Network) -> tuple[str, str]:
    """Divide every row by its length; return them, and whether a row is all zeros and stays as it is."""
    largest = network.add("ReduceMax", network.add("Abs", network.rows), axes=[1], keepdims=1)
    # Divided first by its largest value, a row has a length of at least 1, and its squares do not overflow.
    is_zero = network.add("Equal", largest, network.constant(0.0))
    divisor = network.add("Where", is_zero, network.constant(1.0), largest)
    scaled = network.add("Div", network.rows, divisor)
    length = network.add("ReduceL2", scaled, axes=[1], keepdims=1)
    return network.add("Div", scaled, network.add("Max", length, network.constant(1.0))), is_zero


def _scale(centers: npt.NDArray[np.float64]) -> float:
    """Return a power of two that brings the centers to a length of about 1, or 1 if squares are in range."""
    longest = float(np.abs(centers).max())
    if longest == 0 or SHORTEST <= longest <= LONGEST:
        return 1.0
    return math.ldexp(1.0, min(-math.frexp(longest)[1], 1000))


def _centered(network: Network, rows: str, centers: npt.NDArray[np.float64]) -> tuple[str, str]:
    """Return squared distances less the squared lengths of the rows, and these lengths, about the median."""
    median = np.median(centers, axis=0)
    centers = centers - median
    rows = network.add("Sub", rows, network.constant(median))
    products = network.add("MatMul", rows, network.constant(-2 * centers.T))
    values = network.add("Add", products, network.constant((centers**2).sum(axis=1)))
    return values, network.add("ReduceSumSquare", rows, axes=[1], keepdims=1)


def _mixture(network: Network, source: Any) -> None:
    """Add labels, probabilities and log densities."""
    means = source.means_.astype(np.float64)
    rows = _normalized(network)[0] if is_cosine(source) else network.rows
    k, d = means.shape
    with np.errstate(divide="ignore"):
        # A component that has lost all rows has a weight of 0, and a density of 0.
        log_weights = np.log(source.weights_)
    whole = source.covariance_type in WHOLE
    variances = np.ones((k, d)) if whole else variances_of(source)
    spread = np.log(variances).sum(axis=1) * (d if variances.shape[1] == 1 else 1)
    constants = log_weights - 0.5 * (spread + d * math.log(2 * math.pi))
    if whole:
        covariances = np.broadcast_to(source.covariances_, (k, d, d)).astype(np.float64)
        roots = np.linalg.cholesky(covariances)
        constants = constants - np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        quadratic = network.add("Neg", _along(network, rows, means, np.linalg.inv(roots).astype(np.float64)))
    elif source.covariance_type == "factor":
        axes, log_dets = whitened(source)
        constants = constants - 0.5 * log_dets
        across = _by_feature(network, rows, means, variances)
        quadratic = network.add("Add", across, _along(network, rows, means, axes))
    elif source.covariance_type == "diag":
        quadratic = _by_feature(network, rows, means, variances)
    else:
        values, sq_lengths = _centered(network, rows, means)
        sq_distances = network.add("Add", values, sq_lengths)
        quadratic = network.add("Mul", sq_distances, network.constant(-0.5 / variances[:, 0]))
    densities = network.add("Add", quadratic, network.constant(constants))
    network.put_label("ArgMax", densities)
    shared = network.largest(densities, int(source.n_active)) if source.n_active < k else densities
    network.put("probabilities", network.add("Softmax", shared, axis=1), ["N", k])
    # onnxruntime's ReduceLogSumExp returns minus infinity if the first value of a row is minus infinity.
    largest = network.add("ReduceMax", densities, axes=[1], keepdims=1)
    ratios = network.add("Exp", network.add("Sub", densities, largest))
    row_sums = network.add("ReduceLogSum", ratios, axes=[1], keepdims=1)
    density = network.add("Add", row_sums, largest)
    network.put("log_density", network.add("Squeeze", density, network.constant(np.array([1]))), ["N"])


def _along(network: Network, rows: str, means: npt.NDArray[np.float64], axes: npt.NDArray[np.float64]) -> str:
    """Return half of the squared projections onto the axes of every component."""
    k, h, d = axes.shape
    median = np.median(means, axis=0)
    offsets = (axes @ (means - median)[:, :, None]).ravel()
    rows = network.add("Sub", rows, network.constant(median))
    onto = network.add("MatMul", rows, network.constant(axes.reshape(k * h, d).T))
    onto = network.add("Sub", onto, network.constant(offsets))
    by_component = np.repeat(np.eye(k), h, axis=0)
    squares = network.add("Mul", onto, onto)
    return network.add("MatMul", squares, network.constant(0.5 * by_component))


def _by_feature(
    network: Network, rows: str, means: npt.NDArray[np.float64], variances: npt.NDArray[np.float64]
) -> str:
    """Return minus half of the squared distances in units of the variances of every feature."""
    median = np.median(means, axis=0)
    means, precisions = means - median, 1 / variances
    rows = network.add("Sub", rows, network.constant(median))
    squares = network.add("MatMul", network.add("Mul", rows, rows), network.constant(-0.5 * precisions.T))
    products = network.add("MatMul", rows, network.constant((means * precisions).T))
    sums = network.add("Add", squares, products)
    return network.add("Add", sums, network.constant(-0.5 * (means**2 * precisions).sum(axis=1)))
