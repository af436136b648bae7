// The JSON that commands print: declared here; who builds one includes <nlohmann/json.hpp>, which
// takes long to compile, or command.h.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace fa4::cli {

using Json = nlohmann::ordered_json;

}  // namespace fa4::cli
