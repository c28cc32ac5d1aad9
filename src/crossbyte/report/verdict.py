"""Write the verdict of a quality report: the sentences that a person without background reads first.

A no-break space keeps a number and its unit in one line.
"""

from __future__ import annotations

from crossbyte._format import count, of_100, percent, plural
from crossbyte.report import measurements

_FEW_PAIRS = 100  # held out; with fewer, an interval of recall is up to 20 points wide
_WIDE = 0.1  # an interval around zero that is wider leaves the matter open
_UNEVEN = 0.1  # a difference between directions that is worth a sentence

_GIVE_MORE = "Give at least 1,000 pairs, of which one in ten is held out, for a report to lean on."
_NO_RELATION = (
    "either the pairs are mixed up (check that row i of both sides belongs together), or the two kinds of "
    "features have little to do with each other."
)


def verdict(report: measurements.Measurements) -> list[str]:
    """Write paragraphs: what was found, what to beware of, what compression cost, and which system wins."""
    paragraphs = [
        _describe_recall(report),
        " ".join(_list_warnings(report)),
        _describe_compression(report),
        " ".join(_compare_systems(report)),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _describe_recall(report: measurements.Measurements) -> str:
    recall = measurements.recalls(report)
    image, text = (of_100(recall["crossbyte"][each].value) for each in ("text_to_image", "image_to_text"))
    chance = ""
    if "chance" in recall:
        chance = f"; chance: {of_100(measurements.mean_of_directions(recall['chance']))}"
    found = (
        f"With {plural(report.n_bytes, 'byte')} per item, the right picture is among the first 10 for "
        f"{image} of 100 texts, and the right text for {text} of 100 pictures (among "
        f"{plural(report.n_held_out, 'unseen pair')}{chance})."
    )
    if "uncompressed" not in recall:
        return found
    image, text = (of_100(recall["uncompressed"][each].value) for each in ("text_to_image", "image_to_text"))
    return f"{found} Uncompressed ({plural(_bytes_of(report, 'uncompressed'), 'byte')}): {image} and {text}."


def _list_warnings(report: measurements.Measurements) -> list[str]:
    return [
        words
        for words in (_warn_of_few_pairs(report), _warn_of_chance(report), _warn_of_uneven_directions(report))
        if words
    ]


def _warn_of_few_pairs(report: measurements.Measurements) -> str:
    if report.n_held_out >= _FEW_PAIRS:
        return ""
    held_out = plural(report.n_held_out, "pair")
    if report.n_held_out <= 10:
        return (
            f"Only {held_out} could be held out, so every partner is among the first 10: "
            f"these numbers say nothing. {_GIVE_MORE}"
        )
    return (
        f"Only {held_out} could be held out: the intervals are wide, and small differences "
        f"say nothing. {_GIVE_MORE}"
    )


def _warn_of_chance(report: measurements.Measurements) -> str:
    recall = measurements.recalls(report)
    if "chance" not in recall or report.n_held_out <= 10:
        return ""
    own, chance = recall["crossbyte"], measurements.mean_of_directions(recall["chance"])
    if all(own[each].low <= chance for each in measurements.DIRECTIONS):
        return f"This cannot be told from chance: {_NO_RELATION}"
    above = measurements.mean_of_directions(own) - chance
    if above < chance and above < 0.1 * (1 - chance):
        return f"This is hardly above chance: {_NO_RELATION}"
    return ""


def _warn_of_uneven_directions(report: measurements.Measurements) -> str:
    own = measurements.recalls(report)["crossbyte"]
    worse, better = sorted(measurements.DIRECTIONS, key=lambda each: own[each].value)
    if own[better].low <= own[worse].high or own[better].value - own[worse].value < _UNEVEN:
        return ""
    kind = {"text_to_image": "pictures are found by a text", "image_to_text": "texts are found by a picture"}
    return (
        f"The directions differ: {kind[better]} far more often than {kind[worse]} "
        f"({of_100(own[better].value)} against {of_100(own[worse].value)} of 100)."
    )


def _describe_compression(report: measurements.Measurements) -> str:
    if "uncompressed" not in measurements.recalls(report):
        return ""
    change = (
        f"Compression from {count(_bytes_of(report, 'uncompressed'))} to {plural(report.n_bytes, 'byte')}"
    )
    gain = report.gains.get("uncompressed")
    if gain is None:
        difference = _recall_difference(report, "uncompressed")
        return f"{change}: of 100 queries, {difference} (no interval was measured)."
    difference, interval = format_difference(gain.value), format_interval(gain)
    if gain.high < 0:
        return (
            f"{change} costs {percent(-gain.value)} of 100 queries their partner among the first 10 "
            f"({interval})."
        )
    if gain.low > 0:
        return f"{change} costs nothing: {difference} of 100 queries succeed ({interval})."
    if gain.high - gain.low > _WIDE:
        return f"What compression costs cannot be told from so few pairs ({interval} of 100 queries)."
    return f"{change} costs nothing that can be measured: {difference} of 100 ({interval})."


def _compare_systems(report: measurements.Measurements) -> list[str]:
    simpler = [name for name in ("cca_pq", "cca_rq") if name in measurements.recalls(report)]
    sentences = [_compare_with(report, name) for name in simpler]
    beaten = [name for name in simpler if name in report.gains and report.gains[name].high < 0]
    if beaten:
        sentences.append(
            "So a simpler system finds more for these data: if finding partners is all you need, use it, or "
            "try mapping='auto' and more bytes before you decide."
        )
    return sentences


def _compare_with(report: measurements.Measurements, name: str) -> str:
    gain = report.gains.get(name)
    other = f"{measurements.NAMES[name]} with {plural(_bytes_of(report, name), 'byte')}"
    if gain is None:
        return (
            f"Beside {other}: of 100 queries, {_recall_difference(report, name)} (no interval was measured)."
        )
    if gain.high < 0:
        return f"{other} is better: it finds {percent(-gain.value)} more of 100 ({format_interval(gain)})."
    if gain.low > 0:
        return f"crossbyte finds {percent(gain.value)} more of 100 than {other} ({format_interval(gain)})."
    difference = format_difference(gain.value)
    return f"No measurable difference to {other}: {difference} of 100 ({format_interval(gain)})."


def _recall_difference(report: measurements.Measurements, name: str) -> str:
    recall = measurements.recalls(report)
    gap = measurements.mean_of_directions(recall["crossbyte"]) - measurements.mean_of_directions(recall[name])
    return f"{format_difference(gap)} succeed"


def _bytes_of(report: measurements.Measurements, name: str) -> int:
    return report.system(name).n_bytes or report.n_bytes


# Differences in words, also for the laboratory's tables


def format_difference(difference: float) -> str:
    """Format a difference of shares in units of 100, as more or fewer."""
    shown = percent(abs(difference))
    if shown == "0.0":
        return shown
    return f"{shown} {'more' if difference > 0 else 'fewer'}"


def format_interval(gain: measurements.Estimate) -> str:
    """Format the interval of a difference; more or fewer is written only where it goes both ways."""
    if gain.low <= 0 <= gain.high:
        return f"95\u00a0% interval: {format_difference(gain.low)} to {format_difference(gain.high)}"
    low, high = sorted((abs(gain.low), abs(gain.high)))
    return f"95\u00a0% interval: {percent(low)} to {percent(high)}"
