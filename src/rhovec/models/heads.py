"""Heads: the last part of an encoder, which turns what its layers make of a formula into unit vectors.

A head is one class. Defining a subclass of `Head` with a `name` is all it takes: a configuration that
says this name (`--set head=NAME`, or `EncoderConfig(head=NAME)`) trains, stores, loads and embeds with
it. tests/models/test_head_extension.py has a complete example in a few lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ..errors import RhovecError
from ..kernel import kernel_of_cosine
from .layers import behind_norm, gelu, normalise, unit

if TYPE_CHECKING:
    from torch import Tensor

    from .config import EncoderConfig

Kind = Literal["kernel", "cosine"]
Shapes = dict[str, tuple[int, ...]]
Like = tuple["Tensor", "Tensor"] | None  # rows and vectors of a model
HEADS: dict[str, type[Head]] = {}  # by name


class Head(ABC):
    """(B, width) of pooled tokens -> unit vectors (B, dimension) whose inner products are the kernel k.

    There are two stages. `rows` makes the unit rows that training compares with the teacher, and
    `kind` says what their inner products are: "kernel" (k itself) or "cosine" (k', from which k
    follows as exp(-(1 - k') / sigma2)). `vectors` makes the vectors from these rows; if the rows are
    of kind "kernel" they are the vectors already. Both stages are written twice, in torch and in
    NumPy. Tensors are given to them by the names in `shapes`.
    """

    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]] = ()  # which stored models may still have
    kind: ClassVar[Kind] = "kernel"
    sigma2: ClassVar[float | None] = None  # of the only kernel it can represent; None: of any
    fitted: ClassVar[tuple[str, ...]] = ()  # tensors that `fit` computes; all others are trained

    def __init_subclass__(cls) -> None:
        for name in (cls.name, *cls.former_names):
            known = HEADS.setdefault(name, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise RhovecError(f"there is a head {name!r} already: {known}; choose another name")
            HEADS[name] = cls

    def __init__(self, config: EncoderConfig):
        self.config = config

    @property
    def row_dimension(self) -> int:
        """Numbers per row."""
        return self.config.dimension

    @property
    def min_bank(self) -> int:
        """Number of formulae that `fit` needs; 0 if there is nothing to fit."""
        return 0

    @abstractmethod
    def shapes(self) -> Shapes:
        """Names and shapes of the tensors. Matrices are stored in float16, vectors in float32."""

    @abstractmethod
    def initial(self) -> dict[str, Tensor]:
        """Random tensors to start a training with."""

    @abstractmethod
    def rows(self, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Unit rows (B, row_dimension) from x (B, width), in torch."""

    def vectors(self, tensors: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        """Unit vectors (B, dimension) from rows, in torch."""
        return rows

    def fit(self, tensors: Mapping[str, Tensor], rows: Tensor, like: Like = None) -> None:
        """Compute the tensors in `fitted`, in place, from the rows of min_bank formulae or more.

        like: the rows and vectors of the first of these formulae in another model of the same kind. If
        given, the new space is turned towards it, which changes no inner product: a decoder of the
        other model then already understands much of the new vectors.
        """
        assert not self.fitted, f"the head {self.name} must define `fit`"

    def approach(  # noqa: B027 - a head need not do it
        self, tensors: Mapping[str, Tensor], x: Tensor, rows: Tensor
    ) -> None:
        """Change tensors, in place, so that x (B, width) gives rows near these, if that is easy.

        Training on your own traces begins with it, if the rows are of kind "cosine".
        """

    def prepare(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Rearrange stored tensors, once, for the two NumPy stages."""
        return tensors

    @abstractmethod
    def numpy_rows(self, tensors: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        """`rows` in NumPy, from what `prepare` returned; the rows of x have mean zero."""

    def numpy_vectors(self, tensors: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        """`vectors` in NumPy, from what `prepare` returned."""
        return rows

    def dimension(self, kind: Kind) -> int:
        """Numbers per vector of this kind; an error if the head has none."""
        if kind == "kernel":
            return self.config.dimension
        if kind != "cosine":
            raise RhovecError(f'kind must be "kernel" or "cosine", not {kind!r}')
        if self.kind != "cosine":
            raise RhovecError(
                f"this model's head, {self.name}, has no vectors of kind cosine; ask for kind="
                '"kernel", or load a model that has, such as the shipped one'
            )
        return self.row_dimension


def make_head(config: EncoderConfig) -> Head:
    """The head that a configuration names."""
    if config.head not in HEADS:
        known = sorted({head.name for head in HEADS.values()})
        raise RhovecError(
            f"head must be one of {', '.join(known)}, not {config.head!r}; to use a head of your own, "
            "import the module that defines it first"
        )
    return HEADS[config.head](config)


class Projector(Head):
    """The paper's head: width -> dimension / 2 (GELU, norm) -> dimension, of length one."""

    name = "projector"

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.inner = _share(config, 2)

    def shapes(self) -> Shapes:
        return {
            "norm.weight": (self.config.width,),
            "norm.bias": (self.config.width,),
            "inner.weight": (self.inner, self.config.width),
            "inner.bias": (self.inner,),
            "inner_norm.weight": (self.inner,),
            "inner_norm.bias": (self.inner,),
            "outer.weight": (self.config.dimension, self.inner),
            "outer.bias": (self.config.dimension,),
        }

    def initial(self) -> dict[str, Tensor]:
        from torch import nn

        modules = {
            "norm": nn.LayerNorm(self.config.width),
            "inner": nn.Linear(self.config.width, self.inner),
            "inner_norm": nn.LayerNorm(self.inner),
            "outer": nn.Linear(self.inner, self.config.dimension),
        }
        return {f"{n}.{k}": t for n, m in modules.items() for k, t in m.state_dict().items()}

    def rows(self, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        from torch.nn import functional as F

        def linear(name: str, x: Tensor) -> Tensor:
            return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

        inner = F.gelu(linear("inner", _norm(tensors, "norm", x)), approximate="tanh")
        return F.normalize(linear("outer", _norm(tensors, "inner_norm", inner)).float(), dim=-1)

    def prepare(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        out = {}
        for norm, name in (("norm", "inner"), ("inner_norm", "outer")):
            out[name] = behind_norm(tensors, norm, tensors[f"{name}.weight"])
            out[name][-1] += tensors[f"{name}.bias"]
        return out

    def numpy_rows(self, tensors: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        inner = gelu(normalise(x) @ tensors["inner"])
        inner -= inner.mean(axis=1, keepdims=True)
        return unit(normalise(inner) @ tensors["outer"])


class Nystrom(Head):
    """Nyström features and random Fourier features of directions.

    The layers learn directions: unit rows whose inner products are the cosines k' of robustness
    vectors. How directions become vectors of the kernel k is not trained but computed, by `fit`.

    Half of the dimensions are Nyström features: the kernel of a direction and each of many landmarks,
    weighted. They suffice for the kernel of any two different formulae, but are too short for the kernel
    of a formula and itself: about a sixth of the squared length is missing. The other half are random
    Fourier features of that length. Most have a frequency so high that they agree only for formulae of
    almost the same direction. Far from all landmarks nearly the whole length is missing; it then goes
    to the other quarter of them, which have the frequencies of the kernel itself.
    """

    name = "nystrom"
    former_names = ("landmarks",)
    kind = "cosine"
    sigma2 = 0.2
    fitted = ("landmarks", "outer", "waves")

    DIRECTIONS = 96  # dimensions of directions: more do not make them more exact
    LANDMARKS = 4  # per dimension
    MIN_MISSING = 1e-4  # squared length that Fourier features have at least
    FREQUENCY = 6.0  # of the high-frequency features, along the axis in which directions vary most
    STEADY = 0.005  # variance below which frequencies are much lower along an axis of directions
    SHARED = 0.09  # squared length that is spread evenly over all Nyström features
    MIN_EIGENVALUE = 1e-3  # of the landmarks' kernel; lower ones count as this
    SEED = 0  # of the frequencies
    BLOCK = 8192  # directions worked on at once
    PENALTY = 1e-3  # on the squared size of `direction` when rows are approached

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.inner = _share(config, 2)  # Nyström features
        self.waves = _share(config, 4)  # frequencies, each of which gives a sine and a cosine
        self.low = max(1, self.waves // 4)  # the first of them are low

    @property
    def row_dimension(self) -> int:
        return self.DIRECTIONS

    @property
    def min_bank(self) -> int:
        """A formula for each landmark."""
        return self.LANDMARKS * self.config.dimension

    def shapes(self) -> Shapes:
        return {  # the names are part of the format of stored models
            "norm.weight": (self.config.width,),
            "norm.bias": (self.config.width,),
            "direction": (self.DIRECTIONS, self.config.width),
            "landmarks": (self.min_bank, self.DIRECTIONS),
            "outer": (self.inner, self.min_bank),
            "waves": (self.waves, self.DIRECTIONS),
        }

    def initial(self) -> dict[str, Tensor]:
        import torch
        from torch.nn import functional as F

        shapes = self.shapes()
        return {
            "norm.weight": torch.ones(shapes["norm.weight"]),
            "norm.bias": torch.zeros(shapes["norm.bias"]),
            "direction": torch.randn(shapes["direction"]) * self.config.width**-0.5,
            "landmarks": F.normalize(torch.randn(shapes["landmarks"]), dim=1),
            "outer": torch.randn(shapes["outer"]) * self.config.dimension**-0.5,
            "waves": torch.randn(shapes["waves"]) * self.FREQUENCY,
        }

    def rows(self, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        import torch
        from torch.nn import functional as F

        with torch.autocast(x.device.type, enabled=False):
            normed = _norm(tensors, "norm", x.float())
            return F.normalize(F.linear(normed, tensors["direction"]), dim=-1)

    def vectors(self, tensors: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        import torch
        from torch.nn import functional as F

        with torch.autocast(rows.device.type, enabled=False):
            smooth = F.linear(self._kernel(rows, tensors["landmarks"]), tensors["outer"])
            missing = F.relu(1 - smooth.square().sum(-1, keepdim=True)) + self.MIN_MISSING
            share = missing.square().clamp(max=1)  # of the missing length, for low frequencies
            high = self.waves - self.low
            strength = torch.cat(
                [
                    (missing * share / self.low).sqrt().expand(-1, self.low),
                    (missing * (1 - share) / high).sqrt().expand(-1, high),
                ],
                -1,
            )
            angles = F.linear(rows, tensors["waves"])
            fourier = [angles.sin() * strength, angles.cos() * strength]
            return F.normalize(torch.cat([smooth, *fourier], -1), dim=-1)

    def fit(self, tensors: Mapping[str, Tensor], rows: Tensor, like: Like = None) -> None:
        """Choose landmarks and compute the weights of all features, from directions (N, DIRECTIONS).

        Landmarks are directions at even distances in the list. Their kernel spans a space (Nyström's
        method), of which the features are the dimensions in which the N directions vary most. A unit
        vector cannot keep to that spectrum: the missing length has to go somewhere, and the error is
        smallest if the Nyström features get a part of it.
        """
        import torch

        if like is not None:
            rotation = _rotation(rows[: len(like[0])], like[0])
            tensors["direction"].copy_(rotation.T @ tensors["direction"])
            rows = rows @ rotation
        n, count = len(rows), self.min_bank
        chosen = rows[torch.arange(count, device=rows.device) * n // count]
        values, axes = torch.linalg.eigh(self._kernel(chosen.double(), chosen.double()))
        whiten = axes / values.clamp(min=self.MIN_EIGENVALUE).sqrt()
        covariance = torch.zeros_like(axes)
        for block in torch.split(rows, self.BLOCK):
            inside = self._kernel(block, chosen) @ whiten.float()
            covariance += inside.T @ inside
        values, axes = torch.linalg.eigh(covariance / n)
        values, axes = values[-self.inner :].clamp(min=1e-12), axes[:, -self.inner :]
        raised = (1 + self.SHARED / (2 * self.inner) / values).sqrt()
        tensors["landmarks"].copy_(chosen)
        tensors["outer"].copy_((whiten @ (axes * raised)).T)

        spread, axes = torch.linalg.eigh(rows.T.double() @ rows.double() / n)
        slowed = (spread.clamp(min=0) / (spread.clamp(min=0) + self.STEADY)).sqrt()
        generator = torch.Generator().manual_seed(self.SEED)
        waves = torch.randn(tensors["waves"].shape, generator=generator).to(axes)
        tensors["waves"].copy_(waves @ (axes * slowed) @ axes.T * self.FREQUENCY)
        tensors["waves"][: self.low] = (waves[: self.low] * self.sigma2**-0.5).to(tensors["waves"])
        if like is not None:
            vectors = self.vectors(tensors, rows[: len(like[1])])
            rotation = _rotation(vectors[:, : self.inner], like[1][:, : self.inner])
            tensors["outer"].copy_(rotation.T @ tensors["outer"])

    def approach(self, tensors: Mapping[str, Tensor], x: Tensor, rows: Tensor) -> None:
        """Least squares for `direction`, with a small penalty on its size."""
        import torch

        normed = _norm(tensors, "norm", x.float()).double()
        inner = normed.T @ normed / len(x)
        inner.diagonal().add_(self.PENALTY)
        solved = torch.linalg.solve(inner, normed.T @ rows.double() / len(x))
        tensors["direction"].copy_(solved.T)

    def _kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Kernel (n, m) of unit rows (n, d) and (m, d)."""
        out: Tensor = kernel_of_cosine(a @ b.T, self.sigma2)
        return out

    def prepare(self, tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        transposed = {name: np.ascontiguousarray(tensors[name].T) for name in self.fitted}
        return {"direction": behind_norm(tensors, "norm", tensors["direction"]), **transposed}

    def numpy_rows(self, tensors: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        return unit(normalise(x) @ tensors["direction"])

    def numpy_vectors(self, tensors: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        smooth = kernel_of_cosine(rows @ tensors["landmarks"], self.sigma2) @ tensors["outer"]
        squares = np.einsum("bd,bd->b", smooth, smooth)
        missing = np.maximum(1 - squares, 0) + np.float32(self.MIN_MISSING)
        share = np.minimum(missing * missing, 1)
        angles = rows @ tensors["waves"]
        strength = np.empty_like(angles)
        strength[:, : self.low] = np.sqrt(missing * share / self.low)[:, None]
        high = self.waves - self.low
        strength[:, self.low :] = np.sqrt(missing * (1 - share) / high)[:, None]
        fourier = [np.sin(angles) * strength, np.cos(angles) * strength]
        return unit(np.concatenate([smooth, *fourier], axis=1))


def _rotation(a: Tensor, b: Tensor) -> Tensor:
    """The orthogonal matrix R for which a @ R is nearest to b (Procrustes)."""
    import torch

    left, _, right = torch.linalg.svd(a.double().T @ b.double())
    out: Tensor = (left @ right).to(a)
    return out


def _share(config: EncoderConfig, parts: int) -> int:
    if config.dimension % parts:
        raise RhovecError(f"dimension must be a multiple of {parts}, not {config.dimension}")
    return config.dimension // parts


def _norm(tensors: Mapping[str, Any], name: str, x: Tensor) -> Tensor:
    from torch.nn import functional as F

    weight = tensors[f"{name}.weight"]
    return F.layer_norm(x, weight.shape, weight, tensors[f"{name}.bias"])
