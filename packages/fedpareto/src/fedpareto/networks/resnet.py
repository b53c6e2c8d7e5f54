"""ResNet-18: He et al., "Deep residual learning for image recognition", 2016.

Names and shapes are those of torchvision, so weights that were trained elsewhere fit, tensor by tensor.
"""

from __future__ import annotations

from torch import Tensor, nn

BLOCKS = 2
"""Blocks of each of the four stages."""


class Block(nn.Module):
    """Two convolutions beside a connection that skips them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        values: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(images)).relu()))
        skipped: Tensor = images if self.downsample is None else self.downsample(images)
        return (values + skipped).relu()


class ResNet18(nn.Module):
    """Images in, one number for each class out."""

    def __init__(self, channels: int = 3, classes: int = 1000, width: int = 64) -> None:
        """`width` is the number of channels of the first stage; each further one doubles it."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(width, width, 1)
        self.layer2 = _stage(width, 2 * width, 2)
        self.layer3 = _stage(2 * width, 4 * width, 2)
        self.layer4 = _stage(4 * width, 8 * width, 2)
        self.fc = nn.Linear(8 * width, classes)

    def reset_parameters(self) -> None:
        """Normal with a variance of 2 / fan-out for convolutions (He et al., 2015), as in torchvision."""
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[b, classes]` of images `[b, channels, height, width]`."""
        values = self.maxpool(self.bn1(self.conv1(images)).relu())
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            values = stage(values)
        logits: Tensor = self.fc(values.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(*(Block(outputs if i else inputs, outputs, 1 if i else stride) for i in range(BLOCKS)))
