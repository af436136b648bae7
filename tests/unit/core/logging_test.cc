#include "core/logging.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fa4::internal {
namespace {

using Messages = std::vector<std::string>;

void collect(int level, const char* message, void* context) {
  static_cast<Messages*>(context)->push_back(std::to_string(level) + " " + message);
}

TEST(Log, ReachesTheCallbackUpToItsLevelAndNobodyElse) {
  Messages messages;
  log(1, "before");
  set_log_callback(collect, &messages);
  log(1, "failure");
  log(2, "decision");  // above the default level
  log(1, std::string_view("cut here", 3));
  set_log_callback(nullptr, nullptr);
  log(1, "after");
  EXPECT_EQ(messages, (Messages{"1 failure", "1 cut"}));
}

TEST(Log, CutsLongMessages) {
  Messages messages;
  set_log_callback(collect, &messages);
  log(1, std::string(5000, 'x'));
  set_log_callback(nullptr, nullptr);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0], "1 " + std::string(1023, 'x'));
}

}  // namespace
}  // namespace fa4::internal
