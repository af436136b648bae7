// Changes to text of lines and words, and to bytes.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace ptxemu::fuzz {

class Mutations {
 public:
  // Words of the corpus are what words are replaced by. Both must outlive this.
  Mutations(const std::vector<std::string>& corpus, std::mt19937_64& random);
  // One to four changes of `input`, some with parts of `other`.
  void mutate(std::string* input, const std::string& other);

 private:
  void mutate_once(std::string* input, const std::string& other);
  void change_byte(std::string* input);
  void change_line(std::string* input, const std::string& other);
  void change_word(std::string* input);
  void change_number(std::string* input);
  size_t below(size_t count) { return count == 0 ? 0 : random_() % count; }

  std::vector<std::string> words_;
  std::mt19937_64& random_;
};

}  // namespace ptxemu::fuzz
