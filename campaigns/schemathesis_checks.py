"""Three checks of schemathesis, but for what is argued away; it loads this module by SCHEMATHESIS_HOOKS."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi import checks

from campaigns.contract import ARGUED

Check = Callable[[Any, Any, Any], "bool | None"]


def but_for_what_is_argued(check: Check) -> Check:
    """Let a finding pass if its check and the error in the answer are among those with a reason."""

    def find(ctx: Any, response: Any, case: Any) -> bool | None:
        try:
            return check(ctx, response, case)
        except Failure:
            if is_argued(check.__name__, response.content):
                return None
            raise

    find.__name__ = f"{check.__name__}_argued"
    return find


def is_argued(check: str, body: bytes) -> bool:
    """Tell whether an error of ours is one that there is a reason for."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):
        return False
    return any(
        each.check == check and error["code"] in each.codes and each.said in error["message"]
        for each in ARGUED
    )


for each in (checks.positive_data_acceptance, checks.negative_data_rejection, checks.unsupported_method):
    schemathesis.check(but_for_what_is_argued(each))
