"""Scores of rankings: exact expectations over all orders of the items that tie.

A short code gives few distinct distances, so most items tie with others, and whoever breaks the ties breaks
them in somebody's favour. Here nobody does: every score is its mean over all orders of the tied items, each
as likely as any other, in closed form (McSherry and Najork, "Computing information retrieval performance
measures efficiently in the presence of tied scores", ECIR 2008). Chance is the same with everything tied.

A query for which nothing in the database is relevant scores 0 everywhere and stays in every mean.
"""

from crossbyte.evaluation.metrics.average_precision import average_precision, average_precision_all
from crossbyte.evaluation.metrics.chance import chance_scores
from crossbyte.evaluation.metrics.curves import precision_recall_curve
from crossbyte.evaluation.metrics.partners import PartnerPlaces, partner_places, partner_recall_at
from crossbyte.evaluation.metrics.precision import precision_at
from crossbyte.evaluation.metrics.scorer import Scorer
from crossbyte.evaluation.metrics.ties import TiedRanking, all_tied, ranked

__all__ = [
    "PartnerPlaces",
    "Scorer",
    "TiedRanking",
    "all_tied",
    "average_precision",
    "average_precision_all",
    "chance_scores",
    "partner_places",
    "partner_recall_at",
    "precision_at",
    "precision_recall_curve",
    "ranked",
]
