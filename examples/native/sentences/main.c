/* The similarity of two sentences by all-MiniLM-L6-v2. build.py says how to build it. */
#include "sentences.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCES = 2, TOKENS = SENTENCES_RUN_INPUT_IDS_COUNT / SENTENCES, WIDTH = SENTENCES_RUN_OUTPUT_COUNT / SENTENCES };

typedef struct {
  char *text;
  int64_t id;
} piece;
static piece *pieces;
static size_t piece_count;

static int compare(const void *one, const void *other) {
  return strcmp(((const piece *)one)->text, ((const piece *)other)->text);
}

static void read_vocabulary(const char *path) {
  FILE *file = fopen(path, "r");
  char line[512];
  if (file == NULL) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(2);
  }
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\r\n")] = 0;
    pieces = realloc(pieces, (piece_count + 1) * sizeof *pieces);
    pieces[piece_count] = (piece){strdup(line), (int64_t)piece_count};
    ++piece_count;
  }
  fclose(file);
  qsort(pieces, piece_count, sizeof *pieces, compare);
}

static int64_t id_of(const char *text) {
  piece key = {(char *)text, 0}, *found = bsearch(&key, pieces, piece_count, sizeof *pieces, compare);
  return found == NULL ? -1 : found->id;
}

/* Append the longest pieces of a word, "##" before those that go on; return the number of tokens. */
static size_t add_word(const char *word, size_t length, int64_t *ids, size_t count) {
  size_t start = 0, first = count;
  while (start < length && count < TOKENS - 1) {
    size_t end = length;
    int64_t id = -1;
    for (; end > start; --end) {
      char text[128];
      snprintf(text, sizeof text, "%s%.*s", start ? "##" : "", (int)(end - start), word + start);
      if ((id = id_of(text)) >= 0) break;
    }
    if (id < 0) { /* the word is unknown */
      ids[first] = id_of("[UNK]");
      return first + 1;
    }
    ids[count++] = id;
    start = end;
  }
  return count;
}

/* Words in lower case and signs, as pieces between [CLS] and [SEP]. */
static void tokenize(const char *text, int64_t *ids, int64_t *mask) {
  char word[128];
  size_t length = 0, count = 0;
  ids[count++] = id_of("[CLS]");
  for (;; ++text) {
    unsigned char c = (unsigned char)*text;
    if (c >= 128 || isalnum(c)) {
      if (length < sizeof word - 1) word[length++] = (char)tolower(c);
      continue;
    }
    count = add_word(word, length, ids, count);
    length = 0;
    if (c == 0) break;
    if (!isspace(c)) count = add_word((const char *)&c, 1, ids, count);
  }
  ids[count++] = id_of("[SEP]");
  for (size_t i = 0; i < TOKENS; ++i) {
    mask[i] = i < count;
    if (i >= count) ids[i] = 0;
  }
}

int main(int count, char **arguments) {
  static _Alignas(64) unsigned char arena[SENTENCES_RUN_ARENA_BYTES];
  int64_t ids[SENTENCES][TOKENS], mask[SENTENCES][TOKENS];
  float embeddings[SENTENCES][WIDTH], similarity = 0;
  if (count != 3) {
    fprintf(stderr, "usage: %s SENTENCE SENTENCE\n", arguments[0]);
    return 2;
  }
  read_vocabulary("vocab.txt");
  for (int i = 0; i < SENTENCES; ++i) tokenize(arguments[i + 1], ids[i], mask[i]);
  int status = sentences_run(ids[0], mask[0], embeddings[0], arena, sizeof arena);
  if (status != SENTENCES_OK) {
    fprintf(stderr, "%s\n", sentences_status_text(status));
    return 1;
  }
  for (int i = 0; i < WIDTH; ++i) similarity += embeddings[0][i] * embeddings[1][i];
  printf("%.3f\n", similarity);
}
