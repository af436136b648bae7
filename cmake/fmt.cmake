# fa4_fmt: what every target that formats text links. With fmt 9, Debian's, the library is compiled
# once, inside fa4 and hidden; with another version each file takes it from the headers.
find_package(fmt REQUIRED)

if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(fa4_fmt STATIC src/core/fmt.cc)
  target_compile_features(fa4_fmt PUBLIC cxx_std_20)
  set_target_properties(fa4_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF)
  target_include_directories(
    fa4_fmt SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  add_library(fa4_fmt INTERFACE)
  target_link_libraries(fa4_fmt INTERFACE fmt::fmt-header-only)
endif()
