"""The analysis engine without a trainer: a torchmetrics metric that takes attention maps and gives a LayerAnalysis."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ._checks import wide_dtype
from .alignment import align, checked, pad, pad_tokens, padding
from .analyse import Documents, analyse
from .analysis import LayerAnalysis
from .confidence.groups import N_GROUPS, group_moments
from .field import LagMoments
from .heads import HeadMoments
from .options import DEFAULT_BANDS, FitRange, Options

_SUMS = ("sizes", "counts", "total", "second")
_HEAD_SUMS = ("head_n", "head_counts", "head_total", "head_grams")


class ScalePOD(Metric):
    r"""Multiscale POD of the attention of one layer, over batches of documents.

    ``update`` adds the attention maps of some documents, ``compute`` analyses all that were added. States are the maps
    themselves, or, without the field POD, sums (moments of the lag layout); both reduce over processes, so that in a
    distributed run every process may bring its share of the documents.

    Documents are dealt into eight groups in the order in which they come. From what the groups hold, the analysis tells
    how far its numbers can be believed: standard errors, convergence with the number of documents, energy held out.

    Memory: the field POD keeps 4 N T^2 bytes; with ``field=False`` the states take about 128 T^2 bytes, or 16 T^2 with
    ``confidence=False``.

    Args:
        n_modes: Modes kept of each decomposition.
        omega0: Centre frequency of the Morlet wavelet.
        bands: Centres of the fixed lag bands, in tokens, by name.
        epsilons: Residual energies for which effective ranks H*(eps) are reported.
        fit_range: First and last mode of the power-law fits, counted from 1; "auto" for the widest straight range.
        burn_in: Leading queries left out of R and the field POD; they share their attention among few keys.
        field: Whether to run the field POD.
        confidence: Whether to tell how far the numbers can be believed; it needs 16 documents.
        coherence: Whether to compute the cross-coherence at each dominant scale, which takes long.
        scales: Wavelet scales; by default eight an octave from 2 to half a document, 64 at most.
        signed: Whether the field looks both ways (bidirectional attention). By default the maps tell: a field with
            anything above a diagonal does.
        process: Number of this process and of all, where each brings a share of the documents: with it the groups are
            of one size.
        kwargs: Passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: From the constructor for options that make no sense, from ``update`` for maps of the wrong shape,
            from ``compute`` for fewer than two documents.

    Example:
        >>> import torch
        >>> from scalepod import ScalePOD
        >>> monitor = ScalePOD()
        >>> logits = torch.randn(8, 32, 32, generator=torch.Generator().manual_seed(0))
        >>> causal = torch.ones(32, 32).tril().bool()
        >>> monitor.update(logits.masked_fill(~causal, -torch.inf).softmax(-1))
        >>> analysis = monitor.compute()
        >>> analysis.n_snapshots, list(analysis.bands)
        (8, ['fine', 'medium', 'coarse'])
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = True  # a batch alone may be shorter than the documents before it

    attention: list[Tensor]
    valid: list[Tensor]
    group: list[Tensor]
    n_snapshots: Tensor
    n_skipped: Tensor
    looks_ahead: Tensor
    sizes: Tensor
    counts: Tensor
    total: Tensor
    second: Tensor
    head_n: Tensor
    head_counts: Tensor
    head_total: Tensor
    head_grams: Tensor

    def __init__(
        self,
        n_modes: int = 3,
        omega0: float = 6.0,
        bands: Mapping[str, float] = DEFAULT_BANDS,
        epsilons: Sequence[float] = (0.10, 0.05, 0.01),
        fit_range: FitRange = (1, 30),
        burn_in: int = 0,
        field: bool = True,
        confidence: bool = True,
        coherence: bool = False,
        scales: Sequence[float] | Tensor | None = None,
        signed: bool | None = None,
        process: tuple[int, int] = (0, 1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given = None if scales is None else torch.as_tensor(scales, dtype=torch.float64)
        self.options = Options(
            n_modes, omega0, dict(bands), tuple(epsilons), fit_range, burn_in, field, confidence, coherence, given
        )
        self._signed_given, self.process = signed, process
        for name in ("attention", "valid", "group"):
            self.add_state(name, default=[], dist_reduce_fx="cat")
        for name in ("n_snapshots", "n_skipped", *_SUMS, *_HEAD_SUMS):
            self.add_state(name, default=torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("looks_ahead", default=torch.tensor(0), dist_reduce_fx="max")

    @property
    def n_tokens(self) -> int:
        """Tokens T of the longest document so far; 0 before the first."""
        if self.options.field:
            return self.attention[0].size(-1) if len(self.attention) else 0
        return self.total.size(-1) if self.total.ndim else 0

    @property
    def signed(self) -> bool:
        """Whether the field looks both ways, as far as its documents show."""
        return bool(self._signed_given) or bool(self.looks_ahead)

    @property
    def n_heads(self) -> int:
        """Heads H whose moments were added; 0 where none were."""
        return self.head_total.size(0) if self.head_total.ndim else 0

    @property
    def n_groups(self) -> int:
        """Groups into which the documents are dealt."""
        return N_GROUPS if self.options.confidence else 1

    def update(self, attn: Tensor, valid: Tensor | None = None, maps_per_document: int = 1) -> None:
        """Add the attention maps of a batch of documents.

        Documents of different lengths may come one after the other; the analysis then is of the longest length, and
        what a shorter one lacks is missing from the sums, not zero in them.

        Args:
            attn: Post-softmax attention [B, T, T], query by key, averaged over heads; any float dtype.
            valid: Which tokens are text and which are padding, bool [B, T]; None where there is no padding.
                Documents padded on the left are aligned at their first token.
            maps_per_document: Maps in a row that belong to one document, such as the windows of an image; they go
                into the same group.

        Raises:
            ValueError: If the maps are not square or do not match ``valid``, or if they look ahead although the field
                was declared causal.
        """
        attn = attn.detach()
        attn = attn if attn.dtype in (torch.float32, torch.float64) else attn.float()
        attn, valid = checked(attn, valid)
        attn, valid = align(attn, valid)
        usable = torch.isfinite(attn.flatten(1)).all(1) & valid[:, self.options.burn_in :].any(1)
        seen = int(self.n_snapshots + self.n_skipped)
        document = torch.arange(seen, seen + len(attn), device=attn.device) // maps_per_document
        mine, all_of_them = self.process
        group = (mine + all_of_them * document) % self.n_groups
        self.n_skipped = self.n_skipped + (~usable).sum()
        if not usable.any():
            return
        attn, valid, group = attn[usable], valid[usable], group[usable]
        self._settle_direction(attn)
        self.grow(attn.size(-1))
        attn, valid = pad(attn, self.n_tokens), pad_tokens(valid, self.n_tokens)
        self.n_snapshots = self.n_snapshots + len(attn)
        if self.options.field:
            self.attention.append(attn)
            self.valid.append(valid.to(torch.uint8))
            self.group.append(group)
        else:
            moments = self._moments(Documents(attn, padding(valid), group))
            for name, more in zip(_SUMS, moments, strict=True):
                setattr(self, name, getattr(self, name) + more)

    def add_heads(self, moments: HeadMoments) -> None:
        """Add what is known of the single heads, for how alike they are.

        Args:
            moments: Moments of some of the documents, of any length (see :func:`scalepod.heads.head_moments`).

        Raises:
            ValueError: If the documents before had another number of heads.
        """
        n_heads, n_tokens, _ = moments.total.shape
        if self.n_heads not in (0, n_heads):
            raise ValueError(f"the layer had {self.n_heads} heads in the documents before, and has {n_heads} now")
        self.grow(n_tokens, n_heads=n_heads)
        for name, more in zip(_HEAD_SUMS, _padded_heads(moments, self.head_counts.size(-1)), strict=True):
            setattr(self, name, getattr(self, name) + more)

    def grow(self, n_tokens: int, signed: bool | None = None, n_heads: int = 0) -> None:
        """Make room for documents of ``n_tokens`` tokens; nothing changes where there is room already.

        Processes that saw documents of different lengths, or none, call it with what the others saw before ``compute``.

        Args:
            n_tokens: Tokens of the longest document.
            signed: Whether the field looks both ways, for a monitor whose documents do not show it.
            n_heads: Heads of the layer, where their moments are added.
        """
        self._grow_heads(n_tokens, n_heads or self.n_heads)
        if signed and not self.signed:
            self._look_both_ways()
        if self.options.field:
            self._grow_documents(n_tokens)
        elif not self.total.ndim:
            n_lags = 2 * n_tokens - 1 if self.signed else n_tokens
            wide = wide_dtype(self.total.device)
            self.sizes = self.sizes.new_zeros(self.n_groups)
            self.counts = self.counts.new_zeros(self.n_groups, n_tokens)
            self.total = self.total.new_zeros(self.n_groups, n_tokens, n_tokens, dtype=wide)
            self.second = self.second.new_zeros(self.n_groups, n_lags, n_lags, dtype=wide)
        elif (more := n_tokens - self.n_tokens) > 0:
            front = more if self.signed else 0
            self.counts, self.total = F.pad(self.counts, (0, more)), pad(self.total, n_tokens)
            self.second = F.pad(self.second, (front, more, front, more))

    def compute(self) -> LayerAnalysis:
        """Analyse the documents added so far.

        Returns:
            The analysis; see :class:`LayerAnalysis`.

        Raises:
            ValueError: If fewer than two documents with finite attention were added.
        """
        n, skipped = int(self.n_snapshots), int(self.n_skipped)
        if n < 2:
            raise ValueError(
                f"the analysis needs at least 2 documents with finite attention: got {n}, and left out {skipped} that "
                "held NaN or infinity, or no query after padding and burn-in"
            )
        if not self.options.field:
            groups = LagMoments(*(getattr(self, name) for name in _SUMS))
            return analyse(groups, None, self.options, heads=self._heads(), n_skipped=skipped)
        valid = dim_zero_cat(self.valid).bool()
        documents = Documents(dim_zero_cat(self.attention), padding(valid), dim_zero_cat(self.group))
        return analyse(self._moments(documents), documents, self.options, heads=self._heads(), n_skipped=skipped)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the record whole: torchmetrics goes through what compute returns and squeezes tensors of one element."""
        wrapped = super()._wrap_compute(lambda *args, **kwargs: _Sealed(compute(*args, **kwargs)))

        @functools.wraps(compute)
        def unsealed(*args: Any, **kwargs: Any) -> LayerAnalysis:
            sealed: _Sealed = wrapped(*args, **kwargs)
            return sealed.analysis

        return unsealed

    def _moments(self, documents: Documents) -> LagMoments:
        attn, valid, group = documents
        return group_moments(attn, group, self.n_groups, valid=valid, burn_in=self.options.burn_in, signed=self.signed)

    def _heads(self) -> HeadMoments | None:
        if int(self.head_n) < 2:
            return None
        return HeadMoments(int(self.head_n), self.head_counts, self.head_total, self.head_grams)

    def _grow_heads(self, n_tokens: int, n_heads: int) -> None:
        if not n_heads:
            return
        if not self.head_total.ndim:
            wide = wide_dtype(self.head_total.device)
            self.head_counts = self.head_counts.new_zeros(n_tokens)
            self.head_total = self.head_total.new_zeros(n_heads, n_tokens, n_tokens, dtype=wide)
            self.head_grams = self.head_grams.new_zeros(n_tokens, n_heads, n_heads, dtype=wide)
        sums = HeadMoments(0, self.head_counts, self.head_total, self.head_grams)
        _, self.head_counts, self.head_total, self.head_grams = _padded_heads(sums, n_tokens)

    def _settle_direction(self, attn: Tensor) -> None:
        """Take the field as one that looks both ways as soon as one of its maps does."""
        if self.signed or not attn.triu(1).any():
            return
        if self._signed_given is False:
            raise ValueError("attention above the diagonal in a field that was declared causal: leave out signed=False")
        self._look_both_ways()

    def _look_both_ways(self) -> None:
        """Make room for lags ahead, at which the documents so far had nothing."""
        self.looks_ahead = torch.ones_like(self.looks_ahead)
        if self.total.ndim:
            ahead = self.n_tokens - 1
            self.second = F.pad(self.second, (ahead, 0, ahead, 0))

    def _grow_documents(self, n_tokens: int) -> None:
        if not len(self.attention):
            device = self.n_snapshots.device
            self.attention = [torch.zeros(0, n_tokens, n_tokens, device=device)]
            self.valid = [torch.zeros(0, n_tokens, dtype=torch.uint8, device=device)]
            self.group = [torch.zeros(0, dtype=torch.int64, device=device)]
        elif n_tokens > self.n_tokens:
            self.attention = [pad(attn, n_tokens) for attn in self.attention]
            self.valid = [pad_tokens(valid, n_tokens) for valid in self.valid]


class _Sealed:
    """Hides an analysis from code that walks through collections."""

    def __init__(self, analysis: LayerAnalysis) -> None:
        self.analysis = analysis


def _padded_heads(moments: HeadMoments, n_tokens: int) -> HeadMoments:
    """The moments of documents of at least ``n_tokens`` tokens."""
    more = max(0, n_tokens - moments.counts.size(-1))
    return HeadMoments(
        moments.n,
        F.pad(moments.counts, (0, more)),
        F.pad(moments.total, (0, more, 0, more)),
        F.pad(moments.grams, (0, 0, 0, 0, 0, more)),
    )
