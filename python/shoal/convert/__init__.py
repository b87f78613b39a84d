"""Conversion of fitted models to and from scikit-learn, and to faiss and ONNX."""

from __future__ import annotations

from .faiss import to_faiss
from .onnx import to_onnx
from .scikit_learn import from_sklearn, to_sklearn

__all__ = ["from_sklearn", "to_faiss", "to_onnx", "to_sklearn"]
