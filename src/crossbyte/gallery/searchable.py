"""What a gallery and the service ask of an index: one file, or many shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack, runtime_checkable

from crossbyte.search.ids import Id

if TYPE_CHECKING:
    from crossbyte.model.cmcq import CMCQ
    from crossbyte.progress import ProgressCallback
    from crossbyte.search.asking import Question
    from crossbyte.search.batch import Documents
    from crossbyte.search.cells.cells import Cells
    from crossbyte.search.explanations.explanation import Explanation
    from crossbyte.search.facets import Facet
    from crossbyte.search.hits import Document, Hits

__all__ = ["Searchable", "Sharded", "View", "lost_shards"]


class View(Protocol):
    """One generation of an index, asked in many threads; :class:`crossbyte.Index` documents each method."""

    @property
    def generation(self) -> int:
        """The commit that is seen."""

    def __len__(self) -> int: ...

    def __contains__(self, id: object) -> bool: ...

    def ids(self) -> list[Id]:
        """Give all ids."""

    def get(self, id: Id) -> Document | None:
        """Give a document, or None."""

    def documents(
        self, where: str | None = None, after: int | None = None, limit: int = 50
    ) -> list[Document]:
        """Give documents in the order of their numbers."""

    def facets(
        self, where: str | None = None, fields: Sequence[str] | None = None, limit: int = 12
    ) -> list[Facet]:
        """Say what there is to choose from."""

    def search(
        self, *, payloads: bool = False, probe: int | str | None = None, **question: Unpack[Question]
    ) -> list[Hits]:
        """Find the nearest documents of every query."""

    def payloads(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of what was found."""

    def sides(self, hits: Hits) -> list[tuple[str, ...]]:
        """Say which sides each document has that was found."""

    def explain(
        self,
        id: Id,
        *,
        images: Any = None,
        texts: Any = None,
        like: Any = None,
        target: str | None = None,
        vocabulary: Any = None,
    ) -> Explanation:
        """Say why a document is as near to a query as it is."""

    def stats(self) -> dict[str, Any]:
        """Say how many documents there are, and their bytes."""


class Searchable(View, Protocol):
    """An open index: read, followed, and written where it was opened for that."""

    @property
    def path(self) -> str:
        """The real path of the file or folder."""

    @property
    def model(self) -> CMCQ:
        """The model of all documents."""

    def refresh(self) -> bool:
        """See what others have committed."""

    def pinned(self) -> View:
        """A view that stays at this generation."""

    def verify(self) -> None:
        """Compare everything with its checksums."""

    def close(self) -> None:
        """Close all files; may be called again."""

    def add(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[Documents],
    ) -> int:
        """Add documents."""

    def upsert(
        self,
        ids: Any,
        *,
        callback: ProgressCallback | None = None,
        cluster: str | None = None,
        **documents: Unpack[Documents],
    ) -> int:
        """Add documents, in the place of those that have the same ids."""

    def delete(self, ids: Any, *, missing_ok: bool = False) -> int:
        """Delete documents."""

    @property
    def cells(self) -> Cells | None:
        """What is known of the cells; None without any."""

    def build_cells(
        self,
        *,
        images: Any,
        texts: Any,
        n_cells: int | None = None,
        recall: float = 0.95,
        groups: Any = None,
        callback: ProgressCallback | None = None,
    ) -> None:
        """Put the documents of one file into cells."""

    def drop_cells(self) -> None:
        """Search everything again."""

    def compact(self) -> None:
        """Forget deleted documents, and make the files small."""

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the index; nothing may be at ``path`` yet."""


@runtime_checkable
class Sharded(Protocol):
    """What only an index of shards can say."""

    @property
    def n_shards(self) -> int:
        """How many there are."""

    @property
    def lost(self) -> Sequence[str]:
        """Names of the shards that do not answer at the moment."""


def lost_shards(index: View) -> list[str]:
    """Names of the shards that did not answer when they were last asked; an index of one file has none."""
    return list(index.lost) if isinstance(index, Sharded) else []
