"""Shape of a GPT model, how it is computed, and what it costs to train: pure arithmetic.

The vocabulary is Megatron's. This module does not know how a model is built (``nodeagent.rank``)
nor how fast a machine trains it (``profiles.throughput``).
"""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from profiles.layout import LARGEST, Layout


class ModelShape(BaseModel):
    """Shape of a dense GPT model, and the options of Megatron that it is computed with.

    The options bear Megatron's names.

    Attributes:
        num_layers: Transformer layers.
        hidden_size: Width of the residual stream.
        num_attention_heads: Attention heads; divides ``hidden_size``.
        seq_length: Tokens per sample.
        vocab_size: Tokens in the vocabulary; 256 for bytes.
        hidden_dropout: Probability of dropout after the embedding, attention and feed-forward. With
            any dropout, losses are the same for every number of replicas, but not for every tensor-
            or pipeline-parallel size.
        attention_dropout: Probability of dropout of attention weights.
        share_embeddings_and_output_weights: Whether the output layer uses the embedding's weights.
        sequence_parallel: Whether tensor-parallel ranks share LayerNorm and dropout by position in
            the sequence. Without effect at tp 1.
        bf16: Whether parameters and activations are bfloat16. Gradients are summed, and the
            optimizer's copies of the parameters updated, in float32.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_layers: int = Field(gt=0, le=LARGEST)
    hidden_size: int = Field(gt=0, le=LARGEST)
    num_attention_heads: int = Field(gt=0, le=LARGEST)
    seq_length: int = Field(gt=0, le=LARGEST)
    vocab_size: int = Field(default=256, gt=0, le=LARGEST)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    share_embeddings_and_output_weights: bool = False
    sequence_parallel: bool = False
    bf16: bool = False

    @model_validator(mode="after")
    def _heads_divide_hidden_size(self) -> "ModelShape":
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of"
                f" num_attention_heads {self.num_attention_heads}"
            )
        return self

    def flops_per_sample(self) -> float:
        """Return the floating-point operations of one sample, forward and backward.

        Megatron's formula for a dense GPT with a feed-forward width of 4 x hidden (Narayanan et
        al., "Efficient Large-Scale Language Model Training on GPU Clusters", section 5.1) without
        recomputation: 72 s l h^2 (1 + s / 6h + V / 12 l h).
        """
        s, h, n, v = self.seq_length, self.hidden_size, self.num_layers, self.vocab_size
        return 72.0 * s * n * h * h * (1 + s / (6 * h) + v / (12 * n * h))

    def misfit(self, layout: Layout) -> str | None:
        """Return why ``layout`` can't hold this model, in words for an operator, or None."""
        if self.num_attention_heads % layout.tp:
            return f"num_attention_heads {self.num_attention_heads} is not a multiple of tp {layout.tp}"
        if self.vocab_size % layout.tp:
            return f"vocab_size {self.vocab_size} is not a multiple of tp {layout.tp}"
        if self.num_layers % layout.pp:
            return f"num_layers {self.num_layers} is not a multiple of pp {layout.pp}"
        if self.sequence_parallel and self.seq_length % layout.tp:
            return (
                f"seq_length {self.seq_length} is not a multiple of tp {layout.tp},"
                " as sequence_parallel needs"
            )
        return None
