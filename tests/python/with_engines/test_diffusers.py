"""Diffusers' and torchtitan's own attention under fa4cpp.torch.activate(), on the CPU; what is not installed skips."""

import importlib.util
import unittest

import torch

import fa4cpp

HAS_DIFFUSERS = importlib.util.find_spec("diffusers") is not None
HAS_TORCHTITAN = importlib.util.find_spec("torchtitan") is not None
if HAS_DIFFUSERS:
    import diffusers
if HAS_TORCHTITAN:
    from torchtitan.models.common.attention import ScaledDotProductAttention


class Activated(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.addCleanup(fa4cpp.torch.deactivate)

    def expect_the_same(self, results):
        """`results` gives a tensor and its gradients: PyTorch's attention first, then ours, counted by launches."""
        wanted = results()
        fa4cpp.torch.activate()
        before, fallbacks = fa4cpp.torch.launches(), len(fa4cpp.torch.fallbacks())
        given = results()
        self.assertGreater(fa4cpp.torch.launches(), before)
        self.assertEqual(fa4cpp.torch.fallbacks()[fallbacks:], [])
        fa4cpp.torch.deactivate()
        # A gradient that is 0 but for rounding, as that of a bias of keys, has no size of its own to compare with.
        most = max(tensor.abs().max() for tensor in wanted[1:])
        self.assertLess((given[0] - wanted[0]).abs().max(), 1e-5 * wanted[0].abs().max())
        for one, other in zip(given[1:], wanted[1:]):
            self.assertLess((one - other).abs().max(), 1e-5 * most)


@unittest.skipUnless(HAS_DIFFUSERS, "Diffusers is not installed: pip install diffusers==0.42.1 transformers")
class Diffusers(Activated):
    def expect(self, model, **inputs):
        model.eval()

        def results():
            model.zero_grad()
            sample = model(**inputs).sample
            sample.square().mean().backward()
            return [sample.detach()] + [each.grad.clone() for each in model.parameters() if each.grad is not None]

        self.expect_the_same(results)

    def test_unet(self):
        self.expect(diffusers.UNet2DConditionModel(
            sample_size=16, block_out_channels=(32, 64), layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=32, attention_head_dim=4, norm_num_groups=8),
            sample=torch.randn(2, 4, 16, 16), timestep=torch.tensor(5), encoder_hidden_states=torch.randn(2, 7, 32))

    def test_dit(self):
        self.expect(diffusers.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2,
                                                    sample_size=16, patch_size=2, num_embeds_ada_norm=10),
                    hidden_states=torch.randn(2, 4, 16, 16), timestep=torch.tensor([3, 4]), class_labels=torch.tensor([1, 2]))

    def test_stable_diffusion_3(self):
        self.expect(diffusers.SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
                                                    num_attention_heads=2, joint_attention_dim=32, caption_projection_dim=32,
                                                    pooled_projection_dim=32, out_channels=4),
                    hidden_states=torch.randn(2, 4, 16, 16), encoder_hidden_states=torch.randn(2, 7, 32),
                    pooled_projections=torch.randn(2, 32), timestep=torch.tensor([3.0, 4.0]))

    def test_flux(self):
        self.expect(diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
                                                     num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32,
                                                     axes_dims_rope=(4, 4, 8)),
                    hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 7, 32), pooled_projections=torch.randn(1, 32),
                    timestep=torch.tensor([1.0]), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(7, 3))


@unittest.skipUnless(HAS_TORCHTITAN, "torchtitan is not installed: pip install torchtitan==0.3.0")
class Torchtitan(Activated):
    def test_its_attention(self):
        attention = ScaledDotProductAttention(ScaledDotProductAttention.Config())
        tensors = [torch.randn(2, 20, heads, 32, requires_grad=True) for heads in (4, 2, 2)]

        def results():
            out = attention(*tensors, enable_gqa=True)
            return [out.detach()] + list(torch.autograd.grad(out.square().sum(), tensors))

        self.expect_the_same(results)


if __name__ == "__main__":
    unittest.main()
