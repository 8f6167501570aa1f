# SPDX-License-Identifier: Apache-2.0
"""Writes Caffe's prototxt: a net as a list of layers, a solver as a list of fields.

A `Net` is written twice by the same function: as train_val.prototxt with data layers, fillers and losses, and as
deploy.prototxt with an Input layer and probabilities. What only one of them has is asked of `net.deploy`.
"""

import re

WIDTH = 140


class Word(str):
    """A value of an enumeration: without quotes."""


def value_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word) or not isinstance(value, str):
        return str(value)
    return f'"{value}"'


def field_texts(fields):
    """Each field as text. A list is a field given several times, a dictionary a message; None is no field."""
    texts = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                texts.append(f"{name} {{ {' '.join(field_texts(one))} }}")
            elif one is not None:
                texts.append(f"{name}: {value_text(one)}")
    return texts


def wrapped(head, parts, indent):
    """`head` and `parts` in lines of WIDTH, broken between parts. Messages in a part that is too long have a line of their own."""
    lines = [head]
    for part in parts:
        if indent + len(part) > WIDTH:
            first, *messages = re.split(r" (?=\w+ \{)", part)
            part = first + "\n" + " " * 2 * indent + " ".join(messages)
        if len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append(" " * indent + part)
        else:
            lines[-1] += " " + part
    return "\n".join(lines)


class Net:
    """Layers in their order. Methods return the name of the layer's top, which the next one takes as its bottom."""

    def __init__(self, name, deploy, comment):
        self.deploy = deploy
        self.texts = [f"# {line}" for line in comment] + [f'name: "{name}"']

    def layer(self, type, name, bottom=None, top=None, **fields):
        """`bottom` is a name, a list of names, or None. `top` is the layer's own name where it is not given."""
        top = top or name
        all_fields = {"name": name, "type": type, "bottom": bottom, "top": top} | fields
        *parts, last = field_texts(all_fields)
        self.texts.append(wrapped("layer {", [*parts, last + " }"], 8))
        return top

    def text(self):
        return "\n".join(self.texts) + "\n"

    # What has weights.

    def weighted(self, fields, weights, bias, rates):
        """Adds fillers, where the net is trained. `bias` is the number that it begins with, or None for no bias."""
        if bias is None:
            fields["bias_term"] = False
        if not self.deploy:
            fields["weight_filler"] = weights
            if bias is not None:
                fields["bias_filler"] = {"type": "constant", "value": bias or None}
        param = None
        if rates and not self.deploy:
            param = [{"lr_mult": rate, "decay_mult": decay} for rate, decay in rates[:1 if bias is None else 2]]
        return fields, param

    def conv(self, name, bottom, outputs, kernel, weights, stride=None, pad=None, group=None, bias=0, rates=None):
        """A convolution. A pair as `kernel` or `pad` is height and width."""
        fields = {"num_output": outputs}
        for field, short, value in (("kernel_size", "kernel", kernel), ("pad", "pad", pad)):
            if isinstance(value, tuple):
                fields |= {f"{short}_h": value[0], f"{short}_w": value[1]}
            else:
                fields[field] = value or None
        fields |= {"stride": stride if stride != 1 else None, "group": group}
        fields, param = self.weighted(fields, weights, bias, rates)
        return self.layer("Convolution", name, bottom, param=param, convolution_param=fields)

    def linear(self, name, bottom, outputs, weights, bias=0, rates=None):
        fields, param = self.weighted({"num_output": outputs}, weights, bias, rates)
        return self.layer("InnerProduct", name, bottom, param=param, inner_product_param=fields)

    def batch_norm(self, name, bottom, scale, eps=None):
        """Normalises `bottom` in place, then scales and shifts it by the layer named `scale`. A net that is deployed has no batch
        whose statistics count."""
        fields = {"use_global_stats": True if self.deploy else None, "eps": eps}
        self.layer("BatchNorm", name, bottom, bottom, batch_norm_param=fields if any(fields.values()) else None)
        return self.layer("Scale", scale, bottom, bottom, scale_param={"bias_term": True})

    # What has none.

    def relu(self, name, bottom):
        return self.layer("ReLU", name, bottom, bottom)

    def dropout(self, name, bottom, ratio):
        return self.layer("Dropout", name, bottom, bottom, dropout_param={"dropout_ratio": ratio})

    def pool(self, name, bottom, how, kernel, stride, pad=None):
        fields = {"pool": Word(how), "kernel_size": kernel, "stride": stride, "pad": pad}
        return self.layer("Pooling", name, bottom, pooling_param=fields)

    def pool_all(self, name, bottom):
        """The mean of each map."""
        return self.layer("Pooling", name, bottom, pooling_param={"pool": Word("AVE"), "global_pooling": True})

    def norm(self, name, bottom, size=5, alpha=0.0001, within=False):
        fields = {"local_size": size, "alpha": alpha, "beta": 0.75, "norm_region": Word("WITHIN_CHANNEL") if within else None}
        return self.layer("LRN", name, bottom, lrn_param=fields)

    def concat(self, name, *bottoms):
        return self.layer("Concat", name, list(bottoms))

    # Beginnings and ends.

    def images(self, name, shape, batches, sources, transform, deploy_batch=10):
        """Images and labels: two Data layers, of `sources` (train, test) in `batches` of so many. `shape`: of one image as the net
        takes it, channels, height, width. Training images are mirrored at random where `transform` says so."""
        if self.deploy:
            return self.layer("Input", "data", input_param={"shape": {"dim": [deploy_batch, *shape]}})
        for phase, batch, source in zip(("TRAIN", "TEST"), batches, sources):
            own = dict(transform)
            if phase == "TEST":
                own.pop("mirror", None)
            self.layer("Data", name, top=["data", "label"], include={"phase": Word(phase)}, transform_param=own,
                       data_param={"source": source, "batch_size": batch, "backend": Word("LMDB")})
        return "data"

    def accuracy(self, name, bottom, best=1):
        """Counted while testing: how often the label is among the `best` classes."""
        if not self.deploy:
            self.layer("Accuracy", name, [bottom, "label"], include={"phase": Word("TEST")},
                       accuracy_param={"top_k": best} if best > 1 else None)

    def loss(self, name, bottom, top=None, weight=None):
        if not self.deploy:
            self.layer("SoftmaxWithLoss", name, [bottom, "label"], top, loss_weight=weight)

    def probabilities(self, bottom):
        if self.deploy:
            self.layer("Softmax", "prob", bottom)


def solver_text(comment, fields):
    return "".join(f"# {line}\n" for line in comment) + "".join(text + "\n" for text in field_texts(fields))
