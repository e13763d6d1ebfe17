"""The settings of a typical project, without the telnet console. Tests add more settings with `scrapy crawl -s`."""

SPIDER_MODULES = ["spiders"]
ITEM_PIPELINES = {"spiders.Journal": 300}
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
CONCURRENT_REQUESTS = 16
CONCURRENT_REQUESTS_PER_DOMAIN = 16
DOWNLOAD_DELAY = 0
