"""BERTopic with shoal as its clustering model: `fit_transform`, `transform` and online `partial_fit`."""

import numpy as np
import shoal
from bertopic import BERTopic
from bertopic.dimensionality import BaseDimensionalityReduction
from bertopic.vectorizers import OnlineCountVectorizer
from sklearn.decomposition import IncrementalPCA

SUBJECTS = ["ocean", "market", "garden", "engine", "music"]
K, DIM, BATCH = len(SUBJECTS), 32, 250
RNG = np.random.default_rng(0)

# Documents of five subjects, with embeddings as a language model would give them.
subject = RNG.integers(K, size=1500)
words = [[f"{name}{i}" for i in range(12)] for name in SUBJECTS]
documents = [" ".join(RNG.choice(words[s], 8)) for s in subject]
embeddings = (15 * np.eye(K, DIM)[subject] + RNG.normal(size=(len(subject), DIM))).astype(np.float32)


def check_topics(model: BERTopic, topics: list[int], of: np.ndarray) -> None:
    """Every subject is one topic, whose words are those of the subject."""
    assert len(topics) == len(of)
    for s, name in enumerate(SUBJECTS):
        found = set(np.asarray(topics)[of == s].tolist())
        assert len(found) == 1, f"{name}: topics {found}"
        assert all(word.startswith(name) for word, _ in model.get_topic(found.pop()))


def whole(cls: type, **given: object) -> None:
    """Fit all documents, and find the same topics again with `transform`."""
    model = BERTopic(
        embedding_model=None,
        umap_model=BaseDimensionalityReduction(),
        hdbscan_model=cls(K, random_state=0, **given),
    )
    topics, _ = model.fit_transform(documents, embeddings=embeddings)
    check_topics(model, topics, subject)
    assert model.transform(documents, embeddings=embeddings)[0] == topics
    assert sum(model.get_topic_info().Count) == len(documents)
    print(f"ok: {cls.__name__}{given or ''}, fit_transform and transform")


def online(cls: type, *, late: bool = False, **given: object) -> None:
    """Learn from batches. With `late`, the first batch lacks a subject, which later batches bring."""
    order = RNG.permutation(len(documents))
    if late:
        order = np.concatenate([order[subject[order] > 0], order[subject[order] == 0]])
        RNG.shuffle(order[BATCH:])
    model = BERTopic(
        embedding_model=None,
        umap_model=IncrementalPCA(n_components=8),
        hdbscan_model=cls(K, random_state=0, **given),
        vectorizer_model=OnlineCountVectorizer(),
    )
    n_seen, last = 0, []
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        model.partial_fit([documents[i] for i in rows], embeddings=embeddings[rows])
        last = list(model.topics_)
        assert len(last) == len(rows)
        n_seen += len(rows)
    assert sum(model.topic_sizes_.values()) == n_seen == len(documents)
    share = shoal.metrics.purity(subject[rows], last)
    assert share > 0.95, f"purity {share}"
    case = ", late subject" if late else ""
    print(f"ok: {cls.__name__}, partial_fit{case}; purity of the last batch {share:.3f}")


if __name__ == "__main__":
    for cls in (
        shoal.KMeans,
        shoal.MiniBatchKMeans,
        shoal.NestedMiniBatchKMeans,
        shoal.VarianceReducedKMeans,
    ):
        whole(cls)
    whole(shoal.KMeans, metric="cosine")
    for cls in (shoal.MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans):
        # Random first centers may leave a subject without a center.
        online(cls, init="k-means++")
    # Only MiniBatchKMeans moves centers that lost their rows.
    online(shoal.MiniBatchKMeans, late=True)
