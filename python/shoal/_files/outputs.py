"""Output files of one value or vector per row: arrays, tables and text, written block by block."""

from __future__ import annotations

import io
import os
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal._checks.words import alternatives

from . import tables
from .staged import Name, Staged, WholeFile, check_place, named_errors, write_npy

#: Rows that are converted to text at a time.
TEXT_ROWS = 1 << 16

#: Suffixes of files of one value or one vector per row, of one array, of several arrays, of pictures.
VALUES = (".npy", ".csv", ".txt", ".parquet", ".arrow", ".feather")
VECTORS = (".npy", ".parquet", ".arrow", ".feather")
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
    *(".h5", ".hdf5", ".zarr", ".json", ".html", ".faiss", ".onnx", ".pkl", ".pickle"),
    *(".joblib", ".svg", ".pdf", ".jpg", ".jpeg", ".tsv", ".gz", ".zip", ".xlsx"),
    *(".fvecs", ".bvecs", ".ivecs", ".fbin", ".u8bin", ".i8bin", ".ibin"),
)


def check_suffix(argument: str, path: Name, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` if the suffix of an output is not among the `allowed` ones.

    Models may also have an unknown suffix. Messages name the parameter `argument`.
    """
    name = os.fsdecode(path)
    suffix = Path(name).suffix.lower()
    if suffix in allowed or (allowed is MODELS and suffix not in OTHERS):
        return
    raise ValueError(f"{argument} must be a file that ends in {alternatives(allowed)}, got {name!r}")


def check_output(argument: str, path: Name, allowed: tuple[str, ...]) -> None:
    """Raise unless the suffix of an output is among the `allowed` ones, and the file can be written."""
    check_suffix(argument, path, allowed)
    check_place(path)


class Output(Staged, ABC):
    """A file of one value or vector per row, written to a temporary name and renamed."""

    @abstractmethod
    def append(self, values: npt.NDArray[Any]) -> None:
        """Write the next values."""


def result_shape(rows: int, cols: int | None) -> tuple[int, ...]:
    """Return the shape of an array of `rows` numbers, or of as many vectors of `cols` numbers."""
    return (rows,) if cols is None else (rows, cols)


class NpyOutput(Output):
    """An ``.npy`` file of an array of numbers or vectors."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any], cols: int | None = None) -> None:
        self._target = self._whole = WholeFile(path)
        self._dtype, self._rows, self._cols = dtype, 0, cols
        self._write_header()

    def _write_header(self) -> None:
        """Write the header, whose length does not depend on the number of rows."""
        header = io.BytesIO()
        shape = result_shape(self._rows, self._cols)
        of_array = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, of_array)
        with self._whole.named_errors():
            self._whole.file.seek(0)
            self._whole.file.write(header.getvalue())

    def append(self, values: npt.NDArray[Any]) -> None:
        with self._whole.named_errors():
            self._whole.file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._rows += len(values)

    def prepare(self) -> None:
        if not self._whole.file.closed:
            self._write_header()
        super().prepare()


class TextOutput(Output):
    """A text file with one value per line; floating-point values are written exactly."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        self._target = self._whole = WholeFile(path)

    def append(self, values: npt.NDArray[Any]) -> None:
        for first in range(0, len(values), TEXT_ROWS):
            # `repr` is the shortest text that reads back as the same number.
            lines = map(repr, values[first : first + TEXT_ROWS].tolist())
            self._write("\n".join(lines) + "\n")

    def _write(self, text: str) -> None:
        with self._whole.named_errors():
            self._whole.file.write(text.encode("ascii"))


class CsvOutput(TextOutput):
    """A text file with the column name in its first line."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any]) -> None:
        super().__init__(path, column, dtype)
        self._write(column + "\n")


class TableOutput(Output):
    """A Parquet or Arrow file of one column: numbers or vectors."""

    def __init__(self, path: str, column: str, dtype: np.dtype[Any], cols: int | None = None) -> None:
        self._pa = tables.require_pyarrow(path)
        kind = tables.column_type(self._pa, dtype, cols)
        self._schema = self._pa.schema([self._pa.field(column, kind, False)])
        self._target = self._file = tables.TableFile(path, self._schema)

    def append(self, values: npt.NDArray[Any]) -> None:
        # Copied: the caller may reuse the block.
        column = tables.column_of(self._pa, np.array(values))
        self._file.append(self._pa.record_batch([column], schema=self._schema))


#: Classes of output files, by suffix.
WRITERS: dict[str, Any] = {
    ".npy": NpyOutput,
    ".csv": CsvOutput,
    ".txt": TextOutput,
    ".parquet": TableOutput,
    ".arrow": TableOutput,
    ".feather": TableOutput,
}


def output(argument: str, path: Name, column: str, dtype: npt.DTypeLike, cols: int | None = None) -> Output:
    """Open an output file for values of `dtype`, or for vectors of `cols` values each.

    The suffix gives the format. `column` is the name of the column in formats that have names.
    """
    check_output(argument, path, VALUES if cols is None else VECTORS)
    name = os.fsdecode(path)
    shape = () if cols is None else (cols,)
    made: Output = WRITERS[Path(name).suffix.lower()](name, column, np.dtype(dtype), *shape)
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

    The temporary file is in the folder of `path`, the output file, which errors name.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, cols: int | None = None) -> None:
        self._path, self._dtype, self._rows, self._cols = path, np.dtype(dtype), 0, cols
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
            shape = result_shape(self._rows, self._cols)
            if not self._rows:
                return np.empty(shape, dtype=self._dtype)
            return np.memmap(self._file, dtype=self._dtype, mode="r", shape=shape)

    def close(self) -> None:
        """Close the file; the memory map stays readable."""
        self._file.close()
