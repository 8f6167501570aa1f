# SPDX-License-Identifier: Apache-2.0
"""Names the GPU that torch computes on, and torch's version; fails with torch's words where it cannot. In a process of its own, whose context
ends with it. What comes next finds the engine's libraries in the system's cache of files."""
import torch

torch.cuda.init()
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 30 * 30, 10)).cuda()
net(torch.ones(8, 3, 32, 32, device="cuda")).sum().backward()
torch.cuda.synchronize()
print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
