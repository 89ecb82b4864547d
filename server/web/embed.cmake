file(READ ${IN} TEXT)
file(WRITE ${OUT} "// Made from server/web/index.html.\n#include \"server/web/page.h\"\n\nnamespace thermocline::web {\nconst std::string_view kPage = R\"html(${TEXT})html\";\n}\n")
