// Greedy generation by the library of `fx-importer llm build out -o lm`, with its weights mapped from the model's files:
//
//   c++ -std=c++17 -O2 -Ilm generate.cpp -Llm -llm -Wl,-rpath,$PWD/lm -o generate
//   ./generate 16 --weights tiny-llama/model.safetensors --ids 79 110 99
//
// With tokenizers-cpp (https://github.com/mlc-ai/tokenizers-cpp) in the include path, it also takes a text:
//
//   ./generate 16 --weights tiny-llama/model.safetensors --tokenizer out/tokenizer.json --prompt "Once upon a time"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "lm.h"

#if __has_include(<tokenizers_cpp.h>)
#include <tokenizers_cpp.h>
#define HAS_TOKENIZER 1
#endif

#if defined(LM_CHUNK) || defined(LM_PAGES)
#error "this program passes prompts of any length, to a static cache: import the model to linalg-on-tensors"
#endif
static_assert(LM_BATCH == 1, "this program generates one sequence");

static void check(int status) {
  if (status == LM_OK) return;
  std::fprintf(stderr, "%s\n", lm_status_text(status));
  std::exit(1);
}

struct Free {
  void operator()(void *memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

static Memory memory_of(std::size_t bytes) {
  Memory memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (!memory) {
    std::fprintf(stderr, "no memory for %zu bytes\n", bytes);
    std::exit(1);
  }
  return memory;
}

class Generator {
 public:
  explicit Generator(const std::vector<const char *> &files) : memory_(memory_of(LM_STATE_BYTES)) {
    check(lm_check_processor());
    check(lm_map_weights(files.data(), &weights_));
    check(lm_create(weights_, memory_.get(), LM_STATE_BYTES, &state_));
  }
  ~Generator() { lm_unmap_weights(weights_); }
  Generator(const Generator &) = delete;

  // Read tokens, and return the most likely next one.
  std::int64_t prefill(const std::vector<std::int64_t> &tokens) {
    for (std::size_t start = 0; start < tokens.size(); start += kMost) {
      const std::int64_t count = std::min(kMost, tokens.size() - start), last = count - 1;
      const std::size_t bytes = lm_prefill_arena_bytes(count);
      const Memory arena = memory_of(bytes);
      check(lm_prefill(state_, weights_, count, &tokens[start], &position_, &padding_, &last, logits_.data(),
                       arena.get(), bytes));
      position_ += count;
    }
    return best();
  }

  // Read a token in constant memory, and return the most likely next one.
  std::int64_t decode(std::int64_t token) {
    check(lm_decode(state_, weights_, &token, &position_, &padding_, logits_.data(), arena_.get(),
                    LM_DECODE_ARENA_BYTES));
    ++position_;
    return best();
  }

  std::size_t left() const { return LM_CONTEXT - static_cast<std::size_t>(position_); }

 private:
  static constexpr std::size_t kMost = 256;  // tokens in a call, which bounds the memory of attention

  std::int64_t best() const { return std::max_element(logits_.begin(), logits_.end()) - logits_.begin(); }

  const void *weights_ = nullptr;
  lm_state *state_ = nullptr;
  Memory memory_, arena_ = memory_of(LM_DECODE_ARENA_BYTES);
  std::vector<float> logits_ = std::vector<float>(LM_VOCABULARY);
  std::int64_t position_ = 0, padding_ = 0;
};

static bool ends(std::int64_t token) {
#if LM_STOP_TOKENS_COUNT
  static const std::int64_t stops[] = LM_STOP_TOKENS;
  return std::find(std::begin(stops), std::end(stops), token) != std::end(stops);
#else
  return token < 0;
#endif
}

int main(int count, char **arguments) {
  std::vector<const char *> files;
  std::vector<std::int64_t> tokens;
  std::string tokenizer, prompt, option;
  const char *const usage = "usage: generate COUNT --weights FILE... (--ids ID... | --tokenizer FILE --prompt TEXT)\n";
  for (int i = 2; i < count; i++) {
    const std::string argument = arguments[i];
    if (argument.rfind("--", 0) == 0) option = argument;
    else if (option == "--weights") files.push_back(arguments[i]);
    else if (option == "--ids") tokens.push_back(std::atoll(arguments[i]));
    else if (option == "--tokenizer") tokenizer = argument;
    else if (option == "--prompt") prompt = argument;
  }
#ifdef HAS_TOKENIZER
  std::unique_ptr<tokenizers::Tokenizer> text;
  if (!tokenizer.empty()) {
    std::ifstream file(tokenizer, std::ios::binary);
    text = tokenizers::Tokenizer::FromBlobJSON({std::istreambuf_iterator<char>(file), {}});
    for (const auto id : text->Encode(prompt)) tokens.push_back(id);
  }
#endif
  if (count < 2 || tokens.empty() || tokens.size() > LM_CONTEXT || files.size() != LM_WEIGHTS_FILES) {
    std::fprintf(stderr, "%s%d files of weights (lm.h lists them), 1 to %d tokens\n", usage, LM_WEIGHTS_FILES, LM_CONTEXT);
    return 2;
  }
  Generator generator(files);
  std::vector<std::int64_t> made{generator.prefill(tokens)};
  for (long most = std::atol(arguments[1]); !ends(made.back()); made.push_back(generator.decode(made.back())))
    if (static_cast<long>(made.size()) >= most || generator.left() == 0) break;
#ifdef HAS_TOKENIZER
  if (text) {
    std::puts(text->Decode({made.begin(), made.end()}).c_str());
    return 0;
  }
#endif
  for (const auto token : made) std::printf("%lld ", static_cast<long long>(token));
  std::puts("");
}
