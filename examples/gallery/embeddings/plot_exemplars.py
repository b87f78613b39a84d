"""
A map with exemplars
====================

`report` names the row nearest to every center. Such a row stands for its cluster on a map of all rows,
here a projection of images of digits to two dimensions.
"""

import matplotlib.pyplot as plt
import shoal
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from shoal.demo import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

X, _ = load_digits()
model = shoal.KMeans(10, n_init=10, random_state=0).fit(X)
exemplars = shoal.report(model, X).to_frame()["exemplar"]

# %%
# The two directions that separate the clusters best. The digits themselves are not used.
places = LinearDiscriminantAnalysis(n_components=2).fit_transform(X, model.labels_)
plt.scatter(*places.T, c=model.labels_, s=5, cmap="tab10")
for row in exemplars:
    image = OffsetImage(X[row].reshape(8, 8), zoom=3, cmap="gray_r")
    plt.gca().add_artist(AnnotationBbox(image, places[row], pad=0.1))
plt.axis("off")
plt.show()
