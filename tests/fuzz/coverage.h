// Which edges of the instrumented code an input takes (-fsanitize-coverage=trace-pc, gcc and
// clang).
#pragma once

#include <cstddef>

namespace ptxemu::fuzz {

void begin_coverage();
// True when the run since begin_coverage took an edge, or took it so often, as none before.
bool end_coverage();
size_t covered_edges();  // by all runs

}  // namespace ptxemu::fuzz
