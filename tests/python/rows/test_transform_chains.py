"""Chains of transforms: slices, pickles, names of features, outputs."""

import copy
import pickle

import numpy as np
import pytest
import shoal
from sklearn.preprocessing import Normalizer
from transformed import AXES, X, same, streams


def test_transforms_compose_slice_and_pickle(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    source = shoal.open(tmp_path / "rows.npy").slice(10, 650)
    rows = X[10:650]
    chain = source.standardize().project(AXES, mean=0.5).normalize()
    standard = (rows - chain._view[0]._view[0].mean_) / chain._view[0]._view[0].scale_
    expected = Normalizer().transform((standard - 0.5) @ AXES.T)
    np.testing.assert_allclose(np.asarray(chain), expected, rtol=1e-11, atol=1e-13)
    same(np.asarray(chain.slice(5, 100).slice(2, 9)), np.asarray(chain)[7:14])
    mapped = chain.map(np.cbrt)
    for made_ in (chain, chain.slice(3, 90), mapped, mapped.slice(3, 90), mapped.normalize()):
        for again in (pickle.loads(pickle.dumps(made_)), copy.copy(made_), copy.deepcopy(made_)):
            assert repr(again) == repr(made_)
            same(np.asarray(again), np.asarray(made_))
    assert repr(mapped.slice(3, 90)).startswith(
        f"<DataSource {tmp_path / 'rows.npy'}, rows 10..650, rows 3..90, "
    )
    assert repr(mapped.normalize()).endswith(
        "projected to 4 columns, normalized, mapped by cbrt, normalized: 640 x 4 float64, access replay>"
    )
    standard = pickle.loads(pickle.dumps(source.standardize()))
    same(standard.mean_, source.standardize().mean_)
    with pytest.raises(TypeError, match="was not opened by the path of a file"):
        pickle.dumps(shoal.open(X).normalize())
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(source.map(lambda block: block))


def test_slices_are_checked():
    for source in (shoal.open(X).normalize(), shoal.open(X).map(np.abs)):
        with pytest.raises(IndexError, match=r"rows 3..701 do not lie within 0..700"):
            source.slice(3, 701)
    for source in (shoal.open(streams(X)).normalize(), shoal.open(streams(X)).map(np.abs)):
        with pytest.raises(ValueError, match="has no parts"):
            source.slice(0, 1)
    with pytest.raises(IndexError, match="row 700 does not exist"):
        shoal.open(X).project(AXES).take([700])


def test_a_transformed_source_stays_open():
    with shoal.open(X) as source:
        unit, mapped = source.normalize(), source.map(np.abs)
    for made_ in (unit, mapped):
        assert np.asarray(made_).shape == X.shape
        assert made_.slice(1, 3).shape == (2, 9)
        made_.close()
        for use in (made_.normalize, lambda: made_.slice(1, 3), lambda: made_.map(np.abs)):  # noqa: B023
            with pytest.raises(ValueError, match="is closed"):
                use()
    with pytest.raises(ValueError, match="is closed"):
        source.normalize()


def test_feature_names_are_kept_where_columns_are(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    names = [f"x{i}" for i in range(9)]
    pandas.DataFrame(X, columns=names).to_parquet(tmp_path / "rows.parquet")
    source = shoal.open(tmp_path / "rows.parquet")
    assert source.normalize().standardize().feature_names == names
    assert source.project(AXES).feature_names is None
    assert source.map(np.abs).feature_names is None
    model = shoal.KMeans(3, random_state=0).fit(source.normalize())
    assert list(model.feature_names_in_) == names
    assert not hasattr(
        shoal.KMeans(3, random_state=0).fit(source.normalize().project(AXES)), "feature_names_in_"
    )


def test_an_output_does_not_replace_the_rows(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    for source in (
        shoal.open(tmp_path / "rows.npy").normalize(),
        shoal.open(tmp_path / "rows.npy").map(np.abs),
    ):
        model = shoal.KMeans(3, random_state=0).fit(source)
        with pytest.raises(ValueError, match=r"rows.npy"):
            model.predict(source, out=tmp_path / "rows.npy")
        with pytest.raises(ValueError, match=r"rows.npy"):
            shoal.shuffle(source, tmp_path / "rows.npy")
    same(np.load(tmp_path / "rows.npy"), X)
