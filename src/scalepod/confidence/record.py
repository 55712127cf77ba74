"""What an analysis says of how far its own numbers can be believed."""

import math
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from .convergence import Convergence
from .held_out import Captured, modes_needed
from .jackknife import Change, paired_change, standard_error
from .null import NullSpectra


@dataclass(frozen=True, eq=False, repr=False)
class Confidence:
    """Standard errors, convergence with the number of documents, energy held out, and a null without structure.

    Shapes: Q logged values, G groups of documents, K modes. The field's parts are None when it was not decomposed.
    """

    quantities: tuple[str, ...]
    """Names of the Q values, those of `LayerAnalysis.scalars`."""
    values: Tensor
    """The values of all documents, [Q]; effective ranks as real numbers (`scalepod.spectrum.fractional_rank`)."""
    replicates: Tensor
    """The values without each group of documents, [Q, G]; NaN where undefined."""
    group_sizes: Tensor
    """Documents in each group, [G]."""
    lag_convergence: Convergence
    """T_spec and H* of the lag spectrum at a quarter, half and all of the documents."""
    field_convergence: Convergence | None
    """The same of the field spectrum."""
    lag_held_out: Captured
    """Energy that the lag modes of one half of the documents hold in that half and in the other."""
    field_held_out: Captured | None
    """The same of the field modes."""
    null: NullSpectra | None
    """Spectra of documents with the same energy at every lag and no coherent structure; it takes the documents."""

    def __repr__(self) -> str:
        """How many values and groups; the numbers are in the fields."""
        return f"Confidence({len(self.quantities)} values, {self.replicates.shape[-1]} groups of documents)"

    @property
    def n_groups(self) -> int:
        """Groups of documents G."""
        return self.replicates.shape[-1]

    def stderrs(self) -> dict[str, float]:
        """Jackknife standard error of every value, by name; NaN where it is undefined."""
        return dict(self._stderrs)

    @cached_property
    def _stderrs(self) -> dict[str, float]:
        """Computed once: every error bar of a picture asks for them."""
        errors = standard_error(self.replicates, self.group_sizes)
        return dict(zip(self.quantities, errors.tolist(), strict=True))

    def changes(self, later: "Confidence") -> dict[str, Change]:
        """Whether each value has changed at a later firing on the same documents.

        The errors are those of the differences, in which the choice of documents cancels: a change can be certain that
        is smaller than the error bars.

        Args:
            later: The confidence of the later analysis.

        Returns:
            The change of every value that both have, by name; each field a tensor of no dimension.

        Raises:
            ValueError: If the two are not of the same groups of documents.
        """
        if self.group_sizes.tolist() != later.group_sizes.tolist():
            raise ValueError(
                "a paired comparison needs the same documents in the same groups at both firings: the groups hold "
                f"{self.group_sizes.tolist()} and {later.group_sizes.tolist()} documents"
            )
        names = [name for name in self.quantities if name in later.quantities]
        mine, other = ([side.quantities.index(name) for name in names] for side in (self, later))
        found = paired_change(
            self.values[mine], self.replicates[mine], later.values[other], later.replicates[other], self.group_sizes
        )
        return {name: Change(*(field[i] for field in found)) for i, name in enumerate(names)}

    def heldout_ranks(self, epsilon: float) -> dict[str, float]:
        """Modes of one half of the documents that the other half needs, by "lag" and "field"; infinite if too few."""
        curves = {"lag": self.lag_held_out, "field": self.field_held_out}
        return {kind: modes_needed(found.held_out, epsilon) for kind, found in curves.items() if found is not None}

    def scalars(self, epsilons: tuple[float, ...]) -> dict[str, float]:
        """The values that are logged; infinite or undefined ones are in it too."""
        found = {f"{name}_se": error for name, error in self.stderrs().items()}
        if not epsilons:
            return found
        for kind, convergence in (("lag_", self.lag_convergence), ("", self.field_convergence)):
            if convergence is not None:
                found[f"{kind}h_star_growth"] = float(convergence.growth[0])
        for kind, rank in self.heldout_ranks(epsilons[0]).items():
            found[f"{'lag_' if kind == 'lag' else ''}h_star_heldout"] = rank
        return {name: value for name, value in found.items() if not math.isnan(value)}
