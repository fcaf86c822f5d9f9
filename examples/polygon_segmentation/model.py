"""A small network that finds shapes: a mask, and where outlines run, to a fraction of a cell."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolve, normalise, rectify."""
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class SegmentationNet(nn.Module):
    """Encoder down to 1/8, decoder up to 1/4 of the image's size, and three heads there.

    Args:
        width: Channels of the first layer; the others are multiples of it.
    """

    def __init__(self, width: int = 24) -> None:
        """Make the layers."""
        super().__init__()
        self.to_quarter = nn.Sequential(
            block(3, width, stride=2),
            block(width, 2 * width, stride=2),
            block(2 * width, 2 * width),
        )
        self.to_eighth = nn.Sequential(
            block(2 * width, 4 * width, stride=2), block(4 * width, 4 * width)
        )
        self.merge = block(6 * width, 2 * width)
        self.mask = nn.Conv2d(2 * width, 1, 1)
        self.heat = nn.Conv2d(2 * width, 1, 1)
        self.offset = nn.Conv2d(2 * width, 2, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give logits of the mask at the image's size, and of the heat map and offset map at 1/4 of it."""
        fine = self.to_quarter(images)
        coarse = functional.interpolate(
            self.to_eighth(fine), scale_factor=2.0, mode="nearest"
        )
        features = self.merge(torch.cat([fine, coarse], dim=1))
        mask = functional.interpolate(
            self.mask(features), scale_factor=4.0, mode="bilinear", align_corners=False
        )
        return mask, self.heat(features), self.offset(features)


def loss_of(predicted: tuple[Tensor, Tensor, Tensor], wanted: tuple[Tensor, ...]) -> Tensor:
    """Add the errors of the mask, the heat map, and the offsets in cells on an outline."""
    mask, heat, offset = predicted
    true_mask, true_heat, true_offset = wanted
    on_outline = (true_heat == 1.0).float()
    offset_errors = (torch.sigmoid(offset) - true_offset).abs() * on_outline
    return (
        functional.binary_cross_entropy_with_logits(mask, true_mask)
        + functional.binary_cross_entropy_with_logits(heat, true_heat)
        + offset_errors.sum() / (2.0 * on_outline.sum()).clamp(min=1.0)
    )


def overlap_of(mask: Tensor, true_mask: Tensor) -> Tensor:
    """Intersection over union of the predicted and the true mask."""
    found, true = mask > 0, true_mask > 0
    return (found & true).sum() / (found | true).sum().clamp(min=1)
