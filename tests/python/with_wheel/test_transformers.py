"""Small randomly initialised models of Transformers: fa4cpp beside their eager attention."""

import os
import types
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

import fa4cpp
import fa4cpp.integrations.transformers
from fa4cpp.torch import _tensors

SIZES = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, max_position_embeddings=128, attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "llama": (transformers.LlamaConfig, {}),
    "qwen2": (transformers.Qwen2Config, {}),
    "gemma2": (transformers.Gemma2Config, {"sliding_window": 8}),
    "gpt-oss": (transformers.GptOssConfig, {"sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2}),
}

BART = transformers.BartConfig(vocab_size=97, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                               encoder_ffn_dim=96, decoder_ffn_dim=96, dropout=0.0, init_std=0.2)


def model_of(name, implementation):
    torch.manual_seed(0)
    if name == "bart":
        return transformers.AutoModelForSeq2SeqLM.from_config(BART, attn_implementation=implementation).float().eval()
    config, more = MODELS[name]
    made = transformers.AutoModelForCausalLM.from_config(config(**SIZES, **more), attn_implementation=implementation)
    return made.float().eval()


class Models(unittest.TestCase):
    def both(self, name, run):
        results = [run(model_of(name, "eager"))]
        before = _tensors.launches
        results.append(run(model_of(name, "flash_fa4cpp")))
        self.assertGreater(_tensors.launches, before, name)
        return results

    def close(self, wanted, given, bound=2e-5):
        self.assertLess((wanted - given).abs().max().item(), bound * max(1, wanted.abs().max().item()))

    def test_logits_and_gradients(self):
        tokens = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
        for name in MODELS:
            with self.subTest(name):
                def run(model):
                    output = model(tokens, labels=tokens)
                    output.loss.backward()
                    return output.logits, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

                (logits, gradients), (ours, our_gradients) = self.both(name, run)
                self.close(logits, ours)
                for wanted, given in zip(gradients, our_gradients):
                    self.close(wanted, given, 1e-4)

    def test_padded_batches(self):
        tokens = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
        for name in MODELS:
            for padding in (slice(0, 7), slice(17, 24)):
                with self.subTest(name, padding=padding):
                    mask = torch.ones_like(tokens)
                    mask[1, padding] = 0
                    logits, ours = self.both(name, lambda model: model(tokens, attention_mask=mask).logits)
                    self.close(logits[mask.bool()], ours[mask.bool()])

    def test_keys_of_an_encoder_that_is_padded(self):
        """Their mask says nothing of the decoder's rows: in training several, in generation one, or as many as there are keys."""
        tokens = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
        mask = torch.ones_like(tokens)
        mask[1, 14:] = 0
        for rows in (1, 9, 24):
            with self.subTest(rows=rows):
                logits, ours = self.both("bart", lambda model: model(tokens, attention_mask=mask, decoder_input_ids=tokens[:, :rows]).logits)
                self.close(logits, ours)

    def test_packed_rows(self):
        tokens = torch.randint(3, 97, (1, 24), generator=torch.Generator().manual_seed(1))
        positions = torch.cat([torch.arange(10), torch.arange(14)])[None]
        for name in MODELS:
            with self.subTest(name):
                whole = model_of(name, "flash_fa4cpp")(tokens, position_ids=positions, use_cache=False).logits
                eager = model_of(name, "eager")
                parts = torch.cat([eager(tokens[:, part]).logits for part in (slice(0, 10), slice(10, 24))], 1)
                self.close(parts, whole)

    def test_packed_rows_whose_positions_do_not_begin_at_0(self):
        """As those of RoBERTa's kin."""
        q = torch.randn(1, 4, 6, 16, generator=torch.Generator().manual_seed(1))
        module, positions = types.SimpleNamespace(is_causal=True), torch.tensor([[0, 1, 0, 1, 2, 3]])
        wanted, given = (fa4cpp.integrations.transformers.attention(module, q, q, q, None, position_ids=positions + first)[0] for first in (0, 2))
        self.close(wanted, given)

    def test_rows_of_a_batch_are_no_packed_ones(self):
        """As Transformers has it, also where one row of positions, which begin anew, stands for all."""
        q = torch.randn(2, 4, 6, 16, generator=torch.Generator().manual_seed(1))
        module, positions = types.SimpleNamespace(is_causal=True), torch.tensor([[0, 1, 2, 0, 1, 2]])
        out, _ = fa4cpp.integrations.transformers.attention(module, q, q, q, None, position_ids=positions)
        wanted, _ = fa4cpp.integrations.transformers.attention(module, q, q, q, None)
        self.close(wanted, out)

    def test_generation(self):
        tokens = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(1))
        mask = torch.ones_like(tokens)
        mask[1, :3] = 0
        for name in MODELS:
            with self.subTest(name):
                wanted, given = self.both(name, lambda model: model.generate(tokens, attention_mask=mask, max_new_tokens=32, min_new_tokens=32,
                                                                             do_sample=False))
                self.assertEqual(wanted.tolist(), given.tolist())

    def test_sdpa_under_activate(self):
        tokens = torch.randint(3, 97, (2, 24), generator=torch.Generator().manual_seed(1))
        for name in ("llama", "qwen2"):
            with self.subTest(name):
                wanted = model_of(name, "eager")(tokens).logits
                fa4cpp.torch.activate()
                self.addCleanup(fa4cpp.torch.deactivate)
                before = fa4cpp.torch.launches()
                self.close(wanted, model_of(name, "sdpa")(tokens).logits)
                self.assertGreater(fa4cpp.torch.launches(), before)
                fa4cpp.torch.deactivate()

    def test_dropout_is_refused(self):
        model = model_of("llama", "flash_fa4cpp").train()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.1
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "attention_dropout 0.1 is not in this version"):
            model(torch.ones(1, 4, dtype=torch.long))


if __name__ == "__main__":
    unittest.main()
