"""Give an explanation as JSON, with the documents behind the training pairs that it names."""

from __future__ import annotations

from typing import Any

from crossbyte.gallery.searchable import View
from crossbyte.search.ids import Id
from crossbyte.service.answers import document_answer, look_up
from crossbyte.service.state import Service

__all__ = ["explained"]

_SHOWN = ("id", "payload", "thumbnail")


def explained(
    service: Service, view: View, id: Id, query: dict[str, Any], target: str | None
) -> dict[str, Any]:
    """Say why a document is as near to a query as it is."""
    vocabulary = service.gallery.vocabulary()
    why = view.explain(id, **query, target=target, vocabulary=vocabulary).to_dict()
    why["examples"] = [example | _document(service, view, example["row"]) for example in why["examples"]]
    return why


def _document(service: Service, view: View, row: int) -> dict[str, Any]:
    """Give what is still known of a training pair: nothing if it was deleted, or came as plain features."""
    id = service.gallery.training_id(row)
    document = None if id is None else look_up(view, id)
    answer = {} if document is None else document_answer(service.gallery, document)
    return {name: answer.get(name) for name in _SHOWN}
