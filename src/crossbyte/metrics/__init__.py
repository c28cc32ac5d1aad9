"""Score rankings, and say what chance would score.

Everything here is a function of plain arrays; nothing knows how a ranking was made. A short code gives few
distinct distances, so most items tie with others, and the rule for ties is in the name of whatever has one:

- ``…_ties_by_column``: the order of items is (distance, column number), equal distances go to the smaller
  column number. It is the order in which an index answers, so models are selected and calibrated by it.
- ``expected_…``: the mean over all orders of the tied items, each as likely as any other, in closed form
  (McSherry and Najork, "Computing information retrieval performance measures efficiently in the presence of
  tied scores", ECIR 2008). Whoever breaks ties breaks them in somebody's favour: systems are compared so.
  :class:`Scorer` has no other scores.
- ``chance_…``: of a random order, in which nothing ties or everything does.

Without such a word a function has no rule: the order is given (:func:`mean_average_precision`,
:func:`recall_at`), or ties are kept as they are (:func:`rank_with_ties`, :func:`partner_places`).

**Average precision** divides by the number of relevant items among those *retrieved* (the paper's
denominator) unless it says otherwise. A query for which nothing is relevant scores 0 and stays in every mean.
"""

from crossbyte.metrics.average_precision import (
    expected_average_precision,
    expected_average_precision_all,
    expected_precision,
    expected_precision_recall_curve,
    mean_average_precision,
)
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import (
    PartnerPlaces,
    expected_partner_recall,
    nearest_ties_by_column,
    partner_places,
    partner_ranks_ties_by_column,
    recall_at,
)
from crossbyte.metrics.scorer import Scorer, expected_chance_scores
from crossbyte.metrics.ties import TiedRanking, rank_all_tied, rank_with_ties

__all__ = [
    "PartnerPlaces",
    "Scorer",
    "TiedRanking",
    "chance_mean_average_precision",
    "chance_recall",
    "expected_average_precision",
    "expected_average_precision_all",
    "expected_chance_scores",
    "expected_partner_recall",
    "expected_precision",
    "expected_precision_recall_curve",
    "mean_average_precision",
    "nearest_ties_by_column",
    "partner_places",
    "partner_ranks_ties_by_column",
    "rank_all_tied",
    "rank_with_ties",
    "recall_at",
]
