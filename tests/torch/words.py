# SPDX-License-Identifier: Apache-2.0
"""A model of sparse embeddings, for worker.py: one used twice, one that some workers use in some steps, a bag, and a Linear."""
import poseidon.torch
import torch
from torch import nn

BATCH = 4
TABLES = ("words.weight", "tags.weight", "bag.weight")


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8, sparse=True, padding_idx=0)
        self.tags = nn.Embedding(20, 8, sparse=True)
        self.bag = nn.EmbeddingBag(30, 8, mode="sum", sparse=True)
        self.last = nn.Linear(8, 5)

    def forward(self, words, others, tags, tagged, bags):
        """`tagged`: the samples that have `tags`."""
        x = self.words(words).mean(1) * self.words(others) + self.bag(bags)
        if len(tagged):
            x = x.index_add(0, tagged, self.tags(tags))
        return self.last(x)


def model_of(rank):
    torch.manual_seed(rank)
    return Words()


def batch_of(step, rank, micro):
    """Every rank has another number of rows: words end in 0, which have none. Rank 1 has tags in every other step, nobody in
    every fourth."""
    draw = torch.Generator().manual_seed(10000 * micro + 100 * step + rank)
    drawn = lambda entries, *shape: torch.randint(entries, shape, generator=draw)
    words = drawn(50, BATCH, 6)
    words[:, 3 + (step + rank) % 3:] = 0
    tagged = torch.arange(BATCH if step % 4 != 3 and (rank != 1 or step % 2 == 0) else 0)
    return words, drawn(50, BATCH), drawn(20, BATCH)[tagged], tagged, drawn(30, BATCH, 2), drawn(5, BATCH)


def loss_of(model, batch):
    *inputs, labels = batch
    return nn.functional.cross_entropy(model(*inputs), labels)


def one_behind_the_other(batches):
    for at, batch in enumerate(batches):
        batch[3].add_(at * BATCH)
    return map(torch.cat, zip(*batches))


def optimizers_of(case, model):
    tables = [parameter for name, parameter in model.named_parameters() if name in TABLES]
    if case["optimizer"] == "adam":  # of which no one takes both
        return [torch.optim.SparseAdam(tables, lr=0.01), torch.optim.Adam(model.last.parameters(), lr=0.01)]
    if case["optimizer"] == "adagrad":
        return [torch.optim.Adagrad(model.parameters(), lr=0.05)]
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def gradients_of(model):
    return {name: None if parameter.grad is None else parameter.grad.clone() for name, parameter in model.named_parameters()}


def clip(case, model):
    """By the norm of unmerged rows, of tables that are used once. torch's own clip_grad_norm_ takes no sparse gradients."""
    if case.get("clips"):
        for table in (model.tags.weight, model.bag.weight):
            if table.grad is not None:
                values = table.grad._values()
                values.mul_((0.02 / values.norm()).clamp(max=1))


def train(case, rank):
    poseidon.torch.init(rank=rank, workers=case["workers"], port=case["port"], token_file=case["token"], threads=1,
                        final_plan_step=case["final_plan_step"], schemes=case["schemes"])
    model = model_of(rank)
    optimizers = optimizers_of(case, model)
    exchange = poseidon.torch.wrap(model, optimizers[0], overlap=case["overlap"], check_every=case.get("check_every"))
    gradients = []
    for step in range(case["steps"]):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=case["set_to_none"])
        for micro in range(case["micro"]):
            loss_of(model, batch_of(step, rank, micro)).backward()
        if not case["overlap"]:
            gradients.append(gradients_of(model))
        clip(case, model)
        for optimizer in optimizers:
            optimizer.step()
    statistics = poseidon.torch.joined().statistics()
    torch.save({"weights": dict(model.state_dict()), "gradients": gradients, "plan": exchange.plan(),
                "sent": statistics.wire_bytes_sent}, case["result"] + str(rank))
    poseidon.torch.shutdown()
    loss_of(model, batch_of(0, rank, 0)).backward()  # on its own


def reference(case):
    """One process whose batch is those of all ranks, one behind the other: its weights and gradients."""
    model = model_of(0)
    optimizers = optimizers_of(case, model)
    gradients = []
    for step in range(case["steps"]):
        model.zero_grad(set_to_none=case["set_to_none"])
        for micro in range(case["micro"]):
            loss_of(model, one_behind_the_other([batch_of(step, rank, micro) for rank in range(case["workers"])])).backward()
        gradients.append(gradients_of(model))
        clip(case, model)
        for optimizer in optimizers:
            optimizer.step()
    return dict(model.state_dict()), gradients
