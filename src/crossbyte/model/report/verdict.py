"""The verdict of a quality report: the sentences that a person without background reads first."""

from __future__ import annotations

from crossbyte.model.report.phrases import count, interval, mean, more, n_bytes, n_pairs, of_100, percent
from crossbyte.model.report.report import DIRECTIONS, NAMES, Report
from crossbyte.model.report.tables import recalls

__all__ = ["verdict"]

_FEW = 100  # held-out pairs: below, an interval of recall is up to 20 points wide
_UNCLEAR = 0.1  # an interval around zero that is wider leaves the matter open
_APART = 0.1  # between directions: worth a sentence


def verdict(report: Report) -> list[str]:
    """Say what was found, what to beware of, what compression cost, and which system wins."""
    paragraphs = [
        _findings(report),
        " ".join(_warnings(report)),
        _compression(report),
        " ".join(_comparisons(report)),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _findings(report: Report) -> str:
    recall = recalls(report)
    image, text = (of_100(recall["crossbyte"][each].value) for each in ("text_to_image", "image_to_text"))
    chance = f"; chance: {of_100(mean(recall['chance']))}" if "chance" in recall else ""
    found = (
        f"With {n_bytes(report.n_bytes)} per item, the right picture is among the first 10 for {image} of "
        f"100 texts, and the right text for {text} of 100 pictures (among "
        f"{n_pairs(report.n_held_out, 'unseen ')}{chance})."
    )
    if "uncompressed" not in recall:
        return found
    image, text = (of_100(recall["uncompressed"][each].value) for each in ("text_to_image", "image_to_text"))
    return f"{found} Uncompressed ({n_bytes(_size(report, 'uncompressed'))}): {image} and {text}."


def _warnings(report: Report) -> list[str]:
    return [words for words in (_few(report), _near_chance(report), _one_sided(report)) if words]


def _few(report: Report) -> str:
    if report.n_held_out >= _FEW:
        return ""
    if report.n_held_out <= 10:
        return (
            f"Only {n_pairs(report.n_held_out)} could be held out, so every partner is among the first 10: "
            f"these numbers say nothing. {_GIVE_MORE}"
        )
    return (
        f"Only {n_pairs(report.n_held_out)} could be held out: the intervals are wide, and small differences "
        f"say nothing. {_GIVE_MORE}"
    )


_GIVE_MORE = "Give at least 1,000 pairs, of which one in ten is held out, for a report to lean on."


def _near_chance(report: Report) -> str:
    recall = recalls(report)
    if "chance" not in recall or report.n_held_out <= 10:
        return ""
    own, chance = recall["crossbyte"], mean(recall["chance"])
    if all(own[each].low <= chance for each in DIRECTIONS):
        return f"This cannot be told from chance: {_NO_RELATION}"
    above = mean(own) - chance
    if above < chance and above < 0.1 * (1 - chance):
        return f"This is hardly above chance: {_NO_RELATION}"
    return ""


_NO_RELATION = (
    "either the pairs are mixed up (check that row i of both sides belongs together), or the two kinds of "
    "features have little to do with each other."
)


def _one_sided(report: Report) -> str:
    own = recalls(report)["crossbyte"]
    worse, better = sorted(DIRECTIONS, key=lambda each: own[each].value)
    if own[better].low <= own[worse].high or own[better].value - own[worse].value < _APART:
        return ""
    kind = {"text_to_image": "pictures are found by a text", "image_to_text": "texts are found by a picture"}
    return (
        f"The directions differ: {kind[better]} far more often than {kind[worse]} "
        f"({of_100(own[better].value)} against {of_100(own[worse].value)} of 100)."
    )


def _compression(report: Report) -> str:
    if "uncompressed" not in recalls(report):
        return ""
    change = f"Compression from {count(_size(report, 'uncompressed'))} to {n_bytes(report.n_bytes)}"
    gain = report.gains.get("uncompressed")
    if gain is None:
        return f"{change}: of 100 queries, {_difference(report, 'uncompressed')} (no interval was measured)."
    if gain.high < 0:
        return (
            f"{change} costs {percent(-gain.value)} of 100 queries their partner among the first 10 "
            f"({interval(gain)})."
        )
    if gain.low > 0:
        return f"{change} costs nothing: {more(gain.value)} of 100 queries succeed ({interval(gain)})."
    if gain.high - gain.low > _UNCLEAR:
        return f"What compression costs cannot be told from so few pairs ({interval(gain)} of 100 queries)."
    return f"{change} costs nothing that can be measured: {more(gain.value)} of 100 ({interval(gain)})."


def _comparisons(report: Report) -> list[str]:
    simpler = [name for name in ("cca_pq", "cca_rq") if name in recalls(report)]
    said = [_comparison(report, name) for name in simpler]
    beaten = [name for name in simpler if name in report.gains and report.gains[name].high < 0]
    if beaten:
        said.append(
            "So a simpler system finds more for these data: if finding partners is all you need, use it, or "
            "try mapping='auto' and more bytes before you decide."
        )
    return said


def _comparison(report: Report, name: str) -> str:
    gain, other = report.gains.get(name), f"{NAMES[name]} with {n_bytes(_size(report, name))}"
    if gain is None:
        return f"Beside {other}: of 100 queries, {_difference(report, name)} (no interval was measured)."
    if gain.high < 0:
        return f"{other} is better: it finds {percent(-gain.value)} more of 100 ({interval(gain)})."
    if gain.low > 0:
        return f"crossbyte finds {percent(gain.value)} more of 100 than {other} ({interval(gain)})."
    return f"No measurable difference to {other}: {more(gain.value)} of 100 ({interval(gain)})."


def _difference(report: Report, name: str) -> str:
    recall = recalls(report)
    return f"{more(mean(recall['crossbyte']) - mean(recall[name]))} succeed"


def _size(report: Report, name: str) -> int:
    return report.system(name).n_bytes or report.n_bytes
