"""The published sets of images and texts by name.

Nothing heavy is imported here, so that `fedpareto data list` answers at once.
"""

from __future__ import annotations

from fedpareto.problems.data import DataSet
from fedpareto.problems.images_text.image_sets import IMAGES
from fedpareto.problems.images_text.text_sets import TEXTS

CATALOGUE: dict[str, DataSet] = {**IMAGES, **TEXTS}
