// The sources and the target of this build: the labels of metric build_info.
#pragma once

#include <map>
#include <string>

namespace thermocline::server {

// version, commit, compiler, backend, arch. The commit is that of the last configuration of the
// build; "unknown" outside of a repository.
std::map<std::string, std::string> BuildInfo();

}  // namespace thermocline::server
