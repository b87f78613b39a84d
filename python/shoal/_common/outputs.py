"""Which file the suffix of an output names, and how values are written to it, block by block."""

from __future__ import annotations

import io
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .files import Name, WholeFile, check_place, named_errors, write_npy

#: Rows of a row group of a Parquet file, and the most that are turned into text at a time.
GROUP_ROWS, TEXT_ROWS = 1 << 20, 1 << 16

#: Suffixes of files of one value a row, of arrays, of several arrays, of pictures.
VALUES = (".npy", ".csv", ".txt", ".parquet")
ARRAYS = (".npy",)
BUNDLES = (".npz",)
PICTURES = (".png",)
#: A model or a checkpoint may have any suffix but those of other files.
MODELS = (".safetensors",)
#: What files of these suffixes are is known to everybody.
OTHERS = (
    *VALUES,
    *BUNDLES,
    *PICTURES,
    *(".arrow", ".feather", ".h5", ".hdf5", ".zarr", ".json", ".html", ".onnx", ".pkl", ".pickle"),
    *(".joblib", ".svg", ".pdf", ".jpg", ".jpeg", ".tsv", ".gz", ".zip", ".xlsx"),
    *(".fvecs", ".bvecs", ".ivecs", ".fbin", ".u8bin", ".i8bin", ".ibin"),
)


def check_suffix(argument: str, path: Name, allowed: tuple[str, ...]) -> None:
    """Refuse a name whose suffix says that the file is something else than what will be written.

    Parameters
    ----------
    argument : str
        The parameter or option that the name came as.
    path : str, bytes or os.PathLike
        The file that will be written.
    allowed : tuple of str
        Suffixes of such files.

    Raises
    ------
    ValueError
        For another suffix; for models, one of another known format.
    """
    name = os.fsdecode(path)
    suffix = Path(name).suffix.lower()
    if suffix in allowed or (allowed is MODELS and suffix not in OTHERS):
        return
    *most, last = allowed
    wanted = f"{', '.join(most)} or {last}" if most else last
    raise ValueError(f"{argument} must be a file that ends in {wanted}, got {name!r}")


class Output(ABC):
    """A file of one value a row, which appears whole or not at all."""

    @abstractmethod
    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""

    @abstractmethod
    def prepare(self) -> None:
        """Put everything on the disk, so that only the name is missing."""

    @abstractmethod
    def finish(self) -> None:
        """Give the file its name."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing of a file that is not finished."""

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class NpyOutput(Output):
    """An ``.npy`` file of a one-dimensional array."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        self._whole, self._dtype, self._rows = WholeFile(path), dtype, 0
        self._write_header()

    def _write_header(self) -> None:
        """Write the header, which NumPy makes as long for any number of rows."""
        header = io.BytesIO()
        of_array = {"descr": self._dtype.str, "fortran_order": False, "shape": (self._rows,)}
        np.lib.format.write_array_header_1_0(header, of_array)
        with self._whole.named_errors():
            self._whole.file.seek(0)
            self._whole.file.write(header.getvalue())

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""
        with self._whole.named_errors():
            self._whole.file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._rows += len(values)

    def prepare(self) -> None:
        """Put everything on the disk, so that only the name is missing."""
        if not self._whole.file.closed:
            self._write_header()
        self._whole.prepare()

    def finish(self) -> None:
        """Give the file its name."""
        self.prepare()
        self._whole.finish()

    def close(self) -> None:
        """Leave nothing of a file that is not finished."""
        self._whole.close()


class TextOutput(Output):
    """A text file with a value in every line; floating-point values are written so that none is changed."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        self._whole = WholeFile(path)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""
        for first in range(0, len(values), TEXT_ROWS):
            # The shortest text that gives the same number back.
            lines = map(repr, values[first : first + TEXT_ROWS].tolist())
            self._write("\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        with self._whole.named_errors():
            self._whole.file.write(text.encode("ascii"))

    def prepare(self) -> None:
        """Put everything on the disk, so that only the name is missing."""
        self._whole.prepare()

    def finish(self) -> None:
        """Give the file its name."""
        self._whole.finish()

    def close(self) -> None:
        """Leave nothing of a file that is not finished."""
        self._whole.close()


class CsvOutput(TextOutput):
    """A text file whose first line is the name of its only column."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        super().__init__(path, column, dtype)
        self._write(column + "\n")


class ParquetOutput(Output):
    """A Parquet file of one column, in row groups of a million rows."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        from shoal.formats.stream import required

        self._pa = required("pyarrow", "arrow", path)
        parquet = required("pyarrow.parquet", "arrow", path)
        self._schema = self._pa.schema([self._pa.field(column, self._pa.from_numpy_dtype(dtype), False)])
        self._waiting: list[npt.NDArray[Any]] = []
        self._rows = 0
        self._whole = WholeFile(path)
        self._writer = parquet.ParquetWriter(self._whole.file, self._schema)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Take the next values, and write the row groups that they fill."""
        while self._rows + len(values) >= GROUP_ROWS:
            room = GROUP_ROWS - self._rows
            self._take(values[:room])
            self._write()
            values = values[room:]
        self._take(values)

    def _take(self, values: npt.NDArray[Any]) -> None:
        if len(values):
            # A copy: the block may be written over.
            self._waiting.append(np.array(values))
            self._rows += len(values)

    def _write(self) -> None:
        if self._rows:
            column = self._pa.array(np.concatenate(self._waiting))
            with self._whole.named_errors():
                self._writer.write_table(self._pa.table([column], schema=self._schema), GROUP_ROWS)
            self._waiting, self._rows = [], 0

    def prepare(self) -> None:
        """Put everything on the disk, so that only the name is missing."""
        if not self._whole.file.closed:
            self._write()
            with self._whole.named_errors():
                self._writer.close()
        self._whole.prepare()

    def finish(self) -> None:
        """Give the file its name."""
        self.prepare()
        self._whole.finish()

    def close(self) -> None:
        """Leave nothing of a file that is not finished."""
        # Its own end would be written when it is collected: to a file that is closed then.
        self._writer.is_open = False
        self._whole.close()


#: What writes files of one value a row, by suffix.
WRITERS: dict[str, Any] = {
    ".npy": NpyOutput,
    ".csv": CsvOutput,
    ".txt": TextOutput,
    ".parquet": ParquetOutput,
}


def output(argument: str, path: Name, column: str, dtype: npt.DTypeLike) -> Output:
    """Make the file that the suffix of `path` names; what cannot be written is refused now.

    Parameters
    ----------
    argument : str
        The parameter that the name came as.
    path : str, bytes or os.PathLike
        The file; one that exists is replaced at the end.
    column : str
        What the values are called where a file has names for its columns.
    dtype : dtype
        Type of all values.

    Returns
    -------
    Output

    Raises
    ------
    ValueError
        For a suffix that names no such file.
    OSError
        When the file cannot be written.
    ImportError
        When a package is missing that the file needs.
    """
    check_suffix(argument, path, VALUES)
    check_place(path)
    name = os.fsdecode(path)
    made: Output = WRITERS[Path(name).suffix.lower()](name, column, np.dtype(dtype))
    return made


def write_values(argument: str, path: Name, column: str, values: npt.NDArray[Any]) -> None:
    """Write values that are in memory, as :func:`output` does block by block."""
    if Path(os.fsdecode(path)).suffix.lower() == ".npy":
        write_npy(path, values)
        return
    with output(argument, path, column, values.dtype) as file:
        file.append(values)
        file.finish()


class Mapped:
    """Values in a nameless file beside an output, mapped: a result of any size in little memory.

    Parameters
    ----------
    path : Path
        The output; errors name it.
    dtype : dtype
        Type of all values.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._path, self._dtype, self._rows = path, np.dtype(dtype), 0
        with named_errors(path):
            # Closed by `close`.
            self._file = tempfile.TemporaryFile(dir=path.parent, prefix=".shoal-")  # noqa: SIM115

    def append(self, values: npt.NDArray[Any]) -> None:
        """Put the next values there."""
        with named_errors(self._path):
            self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._rows += len(values)

    def finish(self) -> npt.NDArray[Any]:
        """Map them; the file is gone when nothing reads the array any more."""
        with named_errors(self._path):
            self._file.flush()
            if not self._rows:
                return np.empty(0, dtype=self._dtype)
            return np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._rows,))

    def close(self) -> None:
        """Let go of the file; what is mapped stays readable."""
        self._file.close()
