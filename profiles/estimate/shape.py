"""Shape of a decoder as the estimate needs it: kv heads and gated feed-forward included.

``profiles.model.ModelShape`` is what the built-in GPT is trained with; this is any published model.
Counts are those of Megatron: matrix products only, the whole square of attention, nothing for
recomputation.
"""

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Shape of a dense decoder.

    Attributes:
        layers: Transformer layers.
        hidden: Width of the residual stream.
        heads: Attention heads.
        kv_heads: Heads of keys and values; ``heads`` without grouped queries.
        ffn: Width of the feed-forward.
        gated: Whether the feed-forward has a gate (SwiGLU): three matrices instead of two.
        seq: Tokens of a sample.
        vocab: Tokens in the vocabulary.
        tied: Whether the output layer shares the embedding's weights.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    gated: bool
    seq: int
    vocab: int
    tied: bool = True

    @property
    def head_size(self) -> float:
        """Width of one attention head; a fraction where ``heads`` does not divide ``hidden``."""
        return self.hidden / self.heads

    @property
    def kv_share(self) -> float:
        """Width of the keys over the width of the queries."""
        return self.kv_heads / self.heads

    @property
    def ffn_matrices(self) -> int:
        """Matrices of one feed-forward."""
        return 3 if self.gated else 2

    @property
    def layer_weights(self) -> float:
        """Weights in the matrices of one layer."""
        attention = 2 * self.hidden**2 * (1 + self.kv_share)
        return attention + self.ffn_matrices * self.hidden * self.ffn

    @property
    def embedding_weights(self) -> float:
        """Weights of one embedding, or of the output layer."""
        return float(self.vocab) * self.hidden

    @property
    def num_parameters(self) -> float:
        """Weights of the whole model, biases and norms left out."""
        return self.layers * self.layer_weights + self.embedding_weights * (1 if self.tied else 2)

    @property
    def flops_per_sample(self) -> float:
        """Floating-point operations of one sample, forward and backward.

        For a plain GPT this is 72 s l h^2 (1 + s / 6h + V / 12 l h): Narayanan et al., "Efficient
        Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 5.1, without
        its fourth part for recomputation.
        """
        weights = self.layers * self.layer_weights + self.embedding_weights
        return 6.0 * self.seq * (weights + 2.0 * self.layers * self.seq * self.hidden)

    @property
    def causal_flops_per_sample(self) -> float:
        """The same with the causal half of attention's square only, as Megatron-Bridge counts."""
        return self.flops_per_sample - 6.0 * self.layers * self.seq**2 * self.hidden

    def with_sequence(self, seq: int) -> "DecoderShape":
        """Return the same model trained on samples of ``seq`` tokens."""
        return replace(self, seq=seq)


def gpt(
    layers: int, hidden: int, heads: int, *, seq: int = 2048, vocab: int = 51200
) -> DecoderShape:
    """Return a plain GPT: as many kv heads as heads, a feed-forward of four times the width."""
    return DecoderShape(layers, hidden, heads, heads, 4 * hidden, False, seq, vocab)


def _llama(layers: int, hidden: int, heads: int, ffn: int) -> DecoderShape:
    return DecoderShape(
        layers, hidden, heads, kv_heads=8, ffn=ffn, gated=True, seq=8192, vocab=128256, tied=False
    )


SHAPE_BY_NAME: Final = {
    "gpt3-1.3b": gpt(24, 2048, 16),
    "gpt3-7b": gpt(32, 4096, 32),
    "gpt3-13b": gpt(40, 5120, 40),
    "gpt3-70b": gpt(80, 8192, 64),
    "gpt3-175b": gpt(96, 12288, 96),
    "llama3-8b": _llama(32, 4096, 32, 14336),
    "llama3-70b": _llama(80, 8192, 64, 28672),
    "llama3-405b": _llama(126, 16384, 128, 53248),
}
"""GPT-3: Brown et al., arXiv 2005.14165, table 2.1, with Megatron's padded vocabulary; 7B and 70B
are the usual shapes of that size (24 heads of 85 would not suit 1.3B). Llama 3: arXiv 2407.21783,
table 3."""
