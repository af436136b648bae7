#include "emulator/isa/cluster_contact.h"

#include <algorithm>
#include <initializer_list>

namespace ptxemu {
namespace {

bool has(const Statement& statement, std::initializer_list<std::string_view> wanted) {
  return std::any_of(statement.words.begin() + 1, statement.words.end(), [&](auto word) {
    return std::find(wanted.begin(), wanted.end(), word) != wanted.end();
  });
}

bool is_global_or_generic(const Statement& statement) {
  return !has(statement, {"shared", "shared::cta", "shared::cluster", "local", "param", "const"});
}

bool is_strong(const Statement& statement) {
  if (has(statement, {"volatile", "cv"})) return true;
  return has(statement, {"relaxed", "acquire", "release", "acq_rel"}) &&
         !has(statement, {"cta", "cluster"});
}

bool meets(const Statement& statement) {
  const std::string_view first = statement.words.front();
  if (first == "clusterlaunchcontrol") return has(statement, {"try_cancel"});
  if (first == "multimem") return true;
  if (first == "cp") return has(statement, {"reduce"}) && has(statement, {"global"});
  if (!is_global_or_generic(statement)) return false;
  if (first == "atom" || first == "red") return true;
  return (first == "ld" || first == "st") && is_strong(statement);
}

}  // namespace

bool may_meet(const Function* function) {
  return std::any_of(function->statements.begin(), function->statements.end(), meets);
}

}  // namespace ptxemu
