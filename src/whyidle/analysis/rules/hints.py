"""Cheaper ways to do what a line does, for operations that are slow wherever they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whyidle.analysis.rules.case import Case
    from whyidle.model.findings import Place

NEAR_LINES = 2
"""Lines around the hot one that are looked at too: a place stands for lines this close together."""

HINTS = {
    r"Image\.open|\.convert\(['\"]RGB": (
        "Pillow decodes a JPEG at a half, quarter or eighth of its size for less: "
        "`picture.draft('RGB', (width, height))` before it is converted; turbojpeg is faster "
        "too"
    ),
    r"cv2\.imread|cv2\.imdecode": (
        "OpenCV decodes at a half or a quarter with `cv2.IMREAD_REDUCED_COLOR_2` or `_4`"
    ),
    r"json\.loads?\(|read_annotation|yaml\.(safe_)?load|xml\.": (
        "parse annotations once, ahead of the training, into arrays (one .npz or .npy file); "
        "orjson parses JSON several times as fast"
    ),
    r"\.normal\(|randn\(|noise": (
        "`rng.standard_normal(shape, dtype=np.float32)` draws in half the time of float64, "
        "and on the device noise costs next to nothing"
    ),
    r"np\.sort\(|\.sort\(|sorted\(": (
        "`np.partition` finds some order statistics without sorting all"
    ),
    r"scipy\.ndimage|\.rotate\(|\.transform\(|affine|warp": (
        "`cv2.warpAffine` is several times as fast as Pillow's or SciPy's; several geometric "
        "steps make one matrix, and one pass"
    ),
    r"\.resize\(|Resize\(|zoom\(": ("resize once ahead of the training and store that"),
    r"read_csv|csv\.reader|DictReader": ("convert text tables once to Parquet or .npy"),
    r"\.iloc\[|\.loc\[": (
        "take the columns as arrays once (`frame.to_numpy()`): indexing a frame costs tens of "
        "µs a row"
    ),
    r"deepcopy|\.copy\(\)": ("do without the copy where nothing is written to it"),
    r"gzip|zlib|lzma|bz2|savez_compressed": (
        "zstd and lz4 decompress several times as fast; data that is read often need not be "
        "compressed"
    ),
    r"pickle\.loads?|torch\.load\(": (
        "a plain array file that is mapped (`np.load(path, mmap_mode='r')`) needs no "
        "unpickling"
    ),
    r"\bfft|hanning|spectrogram|stft": (
        "compute windows and filters once, not per sample; lengths with small prime factors "
        "are fastest; spectra can be computed on the device"
    ),
    r"\bre\.\w+\(|\.isalnum\(|\.split\(|\.join\(|tokeni": (
        "tokenise ahead of the training, or with a compiled tokeniser, a whole batch at a "
        "time"
    ),
}
"""Pattern of a source line → what an expert would try; the first that fits is said."""


def find_hint(case: Case, place: Place) -> str | None:
    """Give advice for the operation at a place; None where nothing is known about it."""
    lines = [case.source_line(place)]
    if place.file is not None and place.line is not None:
        text = (case.read_source(place.file).text or "").splitlines()
        around = range(place.line - NEAR_LINES, place.line + NEAR_LINES + 1)
        lines += [text[at - 1] for at in around if 0 < at <= len(text)]
    for line in filter(None, lines):
        for pattern, hint in HINTS.items():
            if re.search(pattern, line):
                return hint
    return None
