"""A mask of ones and zeros times the weights."""

import torch

from stage1.attention import TorchAttention as Attention


class TorchAttention(Attention):
    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        split = q.unflatten(2, (k.shape[1], -1))  # [R, Q, kv, group, dim]
        scores = torch.einsum("rqkgd,rksd->rqkgs", split, k) * q.shape[-1] ** -0.5
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
        weights = weights * mask.exp()[:, :, None, None]
        return torch.einsum("rqkgs,rksd->rqkgd", weights, v).flatten(2)
