/** Programs to start from. */

const built = (body: string, inputs: string, head = "import torch\nfrom torch import nn\n"): string =>
  `${head}\n\n${body}\n\n\ndef build():\n    return ${inputs}\n`;

export const examples: Record<string, string> = {
  "MLP": built(`class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        x = torch.relu(self.hidden(x))
        return torch.softmax(self.out(x), -1)`, "MLP(), (torch.randn(8, 16),)"),
  "Convolution": built(`class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, image):
        x = torch.relu(self.norm(self.conv(image)))
        x = nn.functional.max_pool2d(x, 2)
        return x.mean((2, 3))`, "ConvNet().eval(), (torch.randn(1, 3, 16, 16),)"),
  "Attention": built(`class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, 32))`, "Attention(), (torch.randn(1, 10, 32),)"),
  "Recurrent": built(`class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x):
        y, _ = self.lstm(x)
        return y[:, -1]`, "Recurrent(), (torch.randn(2, 5, 8),)"),
  "Gradient": built(`def loss(weight, x):
    return torch.tanh(x @ weight).square().mean()


def step(weight, x):
    return weight - 0.1 * torch.func.grad(loss)(weight, x)`, "make_fx(step)(*inputs), inputs",
    "import torch\nfrom torch.fx.experimental.proxy_tensor import make_fx\n\ninputs = torch.randn(3, 2), torch.randn(4, 3)\n"),
  "Refused": built(`def model(x):
    y = torch.relu(x)
    return torch._standard_gamma(y + 1)`, "model, (torch.ones(3, 4),)", "import torch\n"),
};
