"""Output files of one value per row: .npy, .csv, .txt and .parquet, written block by block."""

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

#: Rows per row group of a Parquet file, and rows that are converted to text at a time.
GROUP_ROWS, TEXT_ROWS = 1 << 20, 1 << 16

#: Suffixes of files of one value per row, of one array, of several arrays, of pictures.
VALUES = (".npy", ".csv", ".txt", ".parquet")
ARRAYS = (".npy",)
BUNDLES = (".npz",)
PICTURES = (".png",)
#: A model or a checkpoint may have any suffix except those in `OTHERS`.
MODELS = (".safetensors",)
#: Suffixes of other well-known formats.
OTHERS = (
    *VALUES,
    *BUNDLES,
    *PICTURES,
    *(".arrow", ".feather", ".h5", ".hdf5", ".zarr", ".json", ".html", ".faiss", ".onnx", ".pkl", ".pickle"),
    *(".joblib", ".svg", ".pdf", ".jpg", ".jpeg", ".tsv", ".gz", ".zip", ".xlsx"),
    *(".fvecs", ".bvecs", ".ivecs", ".fbin", ".u8bin", ".i8bin", ".ibin"),
)


def check_suffix(argument: str, path: Name, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` if the suffix of an output belongs to another format.

    Parameters
    ----------
    argument : str
        Name of the parameter or option, for messages.
    path : str, bytes or os.PathLike
        The file that will be written.
    allowed : tuple of str
        The allowed suffixes.

    Raises
    ------
    ValueError
        If the suffix is not allowed. Models may also have an unknown suffix.
    """
    name = os.fsdecode(path)
    suffix = Path(name).suffix.lower()
    if suffix in allowed or (allowed is MODELS and suffix not in OTHERS):
        return
    *most, last = allowed
    wanted = f"{', '.join(most)} or {last}" if most else last
    raise ValueError(f"{argument} must be a file that ends in {wanted}, got {name!r}")


class Output(ABC):
    """A file of one value per row, written to a temporary name and renamed."""

    @abstractmethod
    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""

    @abstractmethod
    def prepare(self) -> None:
        """Flush to disk; only the rename is left."""

    @abstractmethod
    def finish(self) -> None:
        """Rename the temporary file."""

    @abstractmethod
    def close(self) -> None:
        """Remove the temporary file, unless it was renamed."""

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


class NpyOutput(Output):
    """An ``.npy`` file of a one-dimensional array."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        self._whole, self._dtype, self._rows = WholeFile(path), dtype, 0
        self._write_header()

    def _write_header(self) -> None:
        """Write the header, whose length does not depend on the number of rows."""
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
        """Flush to disk; only the rename is left."""
        if not self._whole.file.closed:
            self._write_header()
        self._whole.prepare()

    def finish(self) -> None:
        """Rename the temporary file."""
        self.prepare()
        self._whole.finish()

    def close(self) -> None:
        """Remove the temporary file, unless it was renamed."""
        self._whole.close()


class TextOutput(Output):
    """A text file with one value per line; floating-point values are written exactly."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        self._whole = WholeFile(path)

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""
        for first in range(0, len(values), TEXT_ROWS):
            # `repr` is the shortest text that reads back as the same number.
            lines = map(repr, values[first : first + TEXT_ROWS].tolist())
            self._write("\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        with self._whole.named_errors():
            self._whole.file.write(text.encode("ascii"))

    def prepare(self) -> None:
        """Flush to disk; only the rename is left."""
        self._whole.prepare()

    def finish(self) -> None:
        """Rename the temporary file."""
        self._whole.finish()

    def close(self) -> None:
        """Remove the temporary file, unless it was renamed."""
        self._whole.close()


class CsvOutput(TextOutput):
    """A text file with the column name in its first line."""

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
        """Buffer the next values, and write full row groups."""
        while self._rows + len(values) >= GROUP_ROWS:
            room = GROUP_ROWS - self._rows
            self._take(values[:room])
            self._write()
            values = values[room:]
        self._take(values)

    def _take(self, values: npt.NDArray[Any]) -> None:
        if len(values):
            # Copied: the caller may reuse the block.
            self._waiting.append(np.array(values))
            self._rows += len(values)

    def _write(self) -> None:
        if self._rows:
            column = self._pa.array(np.concatenate(self._waiting))
            with self._whole.named_errors():
                self._writer.write_table(self._pa.table([column], schema=self._schema), GROUP_ROWS)
            self._waiting, self._rows = [], 0

    def prepare(self) -> None:
        """Flush to disk; only the rename is left."""
        if not self._whole.file.closed:
            self._write()
            with self._whole.named_errors():
                self._writer.close()
        self._whole.prepare()

    def finish(self) -> None:
        """Rename the temporary file."""
        self.prepare()
        self._whole.finish()

    def close(self) -> None:
        """Remove the temporary file, unless it was renamed."""
        # Otherwise the writer writes its footer to a closed file when it is garbage-collected.
        self._writer.is_open = False
        self._whole.close()


#: Classes of output files, by suffix.
WRITERS: dict[str, Any] = {
    ".npy": NpyOutput,
    ".csv": CsvOutput,
    ".txt": TextOutput,
    ".parquet": ParquetOutput,
}


def output(argument: str, path: Name, column: str, dtype: npt.DTypeLike) -> Output:
    """Open an output file, whose suffix gives the format.

    Parameters
    ----------
    argument : str
        Name of the parameter, for messages.
    path : str, bytes or os.PathLike
        The file. An existing file is replaced at the end.
    column : str
        Name of the column, in formats that have column names.
    dtype : dtype
        Type of all values.

    Returns
    -------
    Output

    Raises
    ------
    ValueError
        If the suffix is not one of ``.npy``, ``.csv``, ``.txt`` and ``.parquet``.
    OSError
        If the file cannot be written.
    ImportError
        If a package that the format needs is missing.
    """
    check_suffix(argument, path, VALUES)
    check_place(path)
    name = os.fsdecode(path)
    made: Output = WRITERS[Path(name).suffix.lower()](name, column, np.dtype(dtype))
    return made


def write_values(argument: str, path: Name, column: str, values: npt.NDArray[Any]) -> None:
    """Write an array to a file, whose suffix gives the format."""
    if Path(os.fsdecode(path)).suffix.lower() == ".npy":
        write_npy(path, values)
        return
    with output(argument, path, column, values.dtype) as file:
        file.append(values)
        file.finish()


class Mapped:
    """A memory map of values in an anonymous temporary file, for results larger than memory.

    Parameters
    ----------
    path : Path
        The output file. The temporary file is in the same folder; errors name the output file.
    dtype : dtype
        Type of all values.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self._path, self._dtype, self._rows = path, np.dtype(dtype), 0
        with named_errors(path):
            # Closed by `close`.
            self._file = tempfile.TemporaryFile(dir=path.parent, prefix=".shoal-")  # noqa: SIM115

    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""
        with named_errors(self._path):
            self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._rows += len(values)

    def finish(self) -> npt.NDArray[Any]:
        """Return the memory map; the file disappears with the array."""
        with named_errors(self._path):
            self._file.flush()
            if not self._rows:
                return np.empty(0, dtype=self._dtype)
            return np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._rows,))

    def close(self) -> None:
        """Close the file; the memory map stays readable."""
        self._file.close()
