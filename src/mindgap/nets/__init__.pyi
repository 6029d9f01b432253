# Written by `make generate`; do not edit.
from mindgap.nets.catalog import available as available
from mindgap.nets.catalog import build as build
from mindgap.nets.elman import Elman as Elman
from mindgap.nets.gated import Gated as Gated
from mindgap.nets.lenet import LeNet5 as LeNet5
from mindgap.nets.mlp import ACTIVATIONS as ACTIVATIONS
from mindgap.nets.mlp import MLP as MLP
from mindgap.nets.resnet import ResNet as ResNet
from mindgap.nets.resnet import ResNet20 as ResNet20
from mindgap.nets.tents import Rect as Rect
from mindgap.nets.tents import Tri as Tri
from mindgap.nets.transformer import Transformer as Transformer
from mindgap.nets.wide_resnet import WideResNet as WideResNet

__all__: list[str]
